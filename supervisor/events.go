package supervisor

import (
	"time"

	"mcpbridge/messages"
)

// eventHistory is how many events the bridge remembers. A subscriber that falls
// further behind hears a gap event.
const eventHistory = 65536

// hub is the bridge's one event hook: everything that happens passes through emit.
type hub struct{ feed *feed[messages.Event] }

func newHub() *hub { return &hub{newFeed[messages.Event](eventHistory)} }

// emit numbers and dates an event and takes it into the history. It never blocks.
func (h *hub) emit(e messages.Event) {
	h.feed.put(func(n uint64) messages.Event {
		e.Seq, e.Time = n, time.Now()
		return e
	})
}

// subscribe calls f for each event from now on; see feed.follow for the promises.
func (h *hub) subscribe(f func(messages.Event)) (stop func()) {
	return h.feed.follow(f, func(lost, upTo uint64) messages.Event {
		return messages.Event{Seq: upTo, Time: time.Now(), Type: messages.EventGap, Count: int(lost)}
	})
}

// since returns the remembered events after number n, with a gap event in front
// where older ones are forgotten.
func (h *hub) since(n uint64) []messages.Event {
	items, lost := h.feed.since(n, 0)
	if lost == 0 {
		return items
	}
	gap := messages.Event{Seq: n + lost, Time: time.Now(), Type: messages.EventGap, Count: int(lost)}
	return append([]messages.Event{gap}, items...)
}

func (h *hub) close() { h.feed.close() }

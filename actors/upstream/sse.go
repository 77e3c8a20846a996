package upstream

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// event is one server-sent event.
type event struct {
	name string
	id   string
	data frame // over when the event passed the cap
}

// eventReader reads a stream of server-sent events. An event over the cap is
// skipped with bounded memory; anything malformed is ignored, as browsers do.
type eventReader struct {
	lines  *lineReader
	max    int
	lastID string
	retry  time.Duration // what the server asked for, or 0
	idle   int           // bytes since the last event that was of use
}

// maxEventID is the longest id that is worth being remembered: it goes into a header.
const maxEventID = 4 << 10

var errStreamNoise = errors.New("the event stream is nothing but noise")

// useful says that the last event was one: the stream may go on for ever that way.
func (r *eventReader) useful() { r.idle = 0 }

func newEventReader(r io.Reader, maxEvent int) *eventReader {
	lines := newLineReader(r, maxEvent+64)
	lines.prefix = "data:"
	return &eventReader{lines: lines, max: maxEvent}
}

// next returns the next event that carries data.
func (r *eventReader) next() (event, error) {
	var ev event
	var data []byte
	has := false
	for {
		f, err := r.lines.next()
		if err != nil {
			return event{}, err // an event without its blank line is not complete
		}
		if r.idle += len(f.data) + 1; r.idle > 2*r.max+readBuffer {
			return event{}, errStreamNoise
		}
		if f.over {
			if !ev.data.over { // a line gives a frame for each id that is in it
				r.idle += r.max
			}
			if !f.other {
				has, data = true, nil
				if !ev.data.found {
					ev.data = f
				}
			}
			continue
		}
		line := bytes.TrimSuffix(bytes.TrimPrefix(f.data, bom), []byte{'\r'})
		if len(line) == 0 {
			if !has {
				ev = event{}
				continue
			}
			if !ev.data.over {
				ev.data = frame{data: data, owned: true}
			}
			return ev, nil
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "event":
			ev.name = string(value)
		case "id":
			if len(value) <= maxEventID && !bytes.ContainsRune(value, 0) {
				ev.id = string(value)
				r.lastID = ev.id
			}
		case "retry":
			if ms, err := strconv.ParseUint(strings.TrimSpace(string(value)), 10, 31); err == nil {
				r.retry = time.Duration(ms) * time.Millisecond
			}
		case "data":
			if ev.data.over {
				continue
			}
			if has && data != nil {
				data = append(data, '\n') // what joins the lines counts as well
			}
			data = append(data, value...)
			if len(data) > r.max {
				ev.data, data = oversized(data), nil
				has = true
				continue
			}
			has = has || len(value) > 0
		}
	}
}

package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/config"
)

// Reconfigure gives the registry another configuration, whose rules the gate has already.
// Done, if not nil, is closed once a snapshot of it is published. A nil Config changes
// nothing: it only waits for what was said before. It is no part of the message set,
// because configuration never passes there.
type Reconfigure struct {
	Config *config.Config
	Done   chan<- struct{}
}

// reconfigure judges every listing again, in one step: there is one new catalogue, and
// the router has it before anybody else. A server that was removed keeps its tools until
// it is gone; one that was added has a row before it says its first word.
func (r *registry) reconfigure(ctx actor.Context, m Reconfigure) {
	if m.Done != nil {
		defer close(m.Done)
	}
	if m.Config == nil {
		return
	}
	r.configure(m.Config)
	for server, listing := range r.listings {
		if _, stays := m.Config.Server(server); stays {
			r.listingChanged(server, listing)
		}
	}
	r.remerge(true)
	r.tellRouter(ctx)
	r.tell(true)
}

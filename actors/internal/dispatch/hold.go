package dispatch

import (
	"fmt"
	"time"

	"mcpbridge/messages"
)

// Results that were read and that their callers have not taken yet are memory that a
// server fills and a slow client keeps. The router counts them by server: beyond the
// server's share new calls are refused, and what stands in line waits until some of
// them are taken. It is the server's own lane that pays; others have their own share.

const (
	// heldShares is how many results of limits.result_bytes a server may have waiting.
	heldShares = 4
	// leastHeld is the share of a server whose results are cut very short.
	leastHeld = 16 << 20
	// mostHeld bounds what all servers have waiting together: beyond it a server that has
	// any is as good as one that is over its share.
	mostHeld = 256 << 20
	// telling is the size from which on results decide how many calls run at once.
	telling = 1 << 20
	// heldRetry is when another try is worth it: as soon as a client has read.
	heldRetry = time.Second
)

// held is one result on its way to its caller.
type held struct {
	server *server
	bytes  int64
}

// share is how much a server may have waiting.
func (s *server) share() int64 { return max(heldShares*s.limits.ResultBytes, leastHeld) }

// retain counts a result in until Delivered says that its caller has it.
func (c *Core) retain(cl *call, n int64) {
	s := cl.server
	s.usual = max(n, s.usual-s.usual/8)
	if n < messages.HoldFrom {
		return
	}
	c.held[cl.id] = held{s, n}
	s.held += n
	c.heldBytes += n
}

// delivered counts it out.
func (c *Core) delivered(m messages.Delivered) {
	h, ok := c.held[m.CallID]
	if !ok {
		return
	}
	delete(c.held, m.CallID)
	h.server.held -= h.bytes
	c.heldBytes -= h.bytes
	if c.servers[h.server.key] == h.server {
		c.touch(h.server)
	}
}

// next is how much more the next result of a server is likely to be.
func (s *server) next() int64 {
	if s.usual < telling {
		return 0
	}
	return s.usual
}

// pressed reports whether a server has as much waiting as it may, or so much that another
// result of its would be too much: only its callers can make room then, so that nothing is
// gained by standing in line.
func (c *Core) pressed(s *server) bool {
	share := s.share()
	return s.held >= share || s.held > 0 && (s.held+s.next() > share || c.heldBytes >= mostHeld)
}

// room reports whether one more call may be handed out, whose result will be as large
// as they have been lately. One call at a time may always run.
func (c *Core) room(s *server) bool {
	switch {
	case s.held == 0 && s.inFlight == 0:
		return true
	case c.pressed(s):
		return false
	default:
		return s.held+int64(s.inFlight+1)*s.next() <= s.share()
	}
}

func pressure(s *server) verdict {
	return overloaded(fmt.Sprintf("%d MiB of results of server %s wait to be taken by their callers", s.held>>20, quote(s.key.String())), heldRetry)
}

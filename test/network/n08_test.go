package network

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// nameServer answers for every name: an address, no such name, a failure, or nothing.
type nameServer struct {
	mu    sync.Mutex
	addr  net.IP
	rcode byte
	mute  bool
	asked int
}

// resolver makes this process ask the name server.
func (s *nameServer) resolver(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.serve(pc)
	old := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
	t.Cleanup(func() { net.DefaultResolver = old; _ = pc.Close() })
}

func (s *nameServer) set(addr string, rcode byte, mute bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr, s.rcode, s.mute = net.ParseIP(addr).To4(), rcode, mute
}

func (s *nameServer) serve(pc net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		s.mu.Lock()
		addr, rcode, mute := s.addr, s.rcode, s.mute
		s.asked++
		s.mu.Unlock()
		if m := reply(buf[:n], addr, rcode); m != nil && !mute {
			_, _ = pc.WriteTo(m, from)
		}
	}
}

// reply answers one question of a DNS query.
func reply(q []byte, addr net.IP, rcode byte) []byte {
	if len(q) < 17 {
		return nil
	}
	end := 12
	for end < len(q) && q[end] != 0 {
		end += int(q[end]) + 1
	}
	end += 5 // the zero, type and class
	if end > len(q) {
		return nil
	}
	kind := binary.BigEndian.Uint16(q[end-4:])
	m := append([]byte{q[0], q[1], 0x81, 0x80 | rcode, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
	if kind == 1 && rcode == 0 && addr != nil {
		m[7] = 1
		m = append(m, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		m = append(m, addr...)
	}
	return m
}

// TestN08AddressChanges: the name leads somewhere else, and what was there refuses,
// resets or falls silent. The next connection goes to the new address.
func TestN08AddressChanges(t *testing.T) {
	for name, end := range map[string]func(r *rig){
		"closed":     func(r *rig) { r.w.down() },
		"black hole": func(r *rig) { r.w.set(fault{hole: true}) },
		"resets":     func(r *rig) { r.w.set(fault{refuse: true}); r.resetAll() },
	} {
		t.Run(name, func(t *testing.T) {
			dns := &nameServer{}
			dns.resolver(t)
			r := newRig(t)
			old, port, _ := net.SplitHostPort(r.w.addr)
			dns.set(old, 0, false)
			ln, err := net.Listen("tcp", net.JoinHostPort("127.78.1.1", port))
			if err != nil {
				t.Skip("no second loopback address here")
			}
			moved := newOriginOn(t, r.lab, "web", ln)
			r.open(harness.M{"url": "http://mcp.bridge.test:" + port + "/mcp", "health": harness.M{"probe_every": "300ms", "failures": 2}})
			r.ok(r.call("write", harness.Patience))
			dns.set("127.78.1.1", 0, false)
			end(r)
			out := r.call("write", 2*time.Second) // it may have gone to the old place
			if out.Kind == messages.OK && r.lab.History(t).Ends("write-2") != 1 {
				t.Errorf("%s", out.Kind)
			}
			at := time.Now()
			harness.EventuallyWithin(t, 30*time.Second, "calls arrive at the new address", func() bool {
				return r.call("read", 3*time.Second).Kind == messages.OK
			})
			t.Logf("after %s", time.Since(at).Round(time.Millisecond))
			r.ok(r.call("write", harness.Patience))
			if len(moved.requests("tools/call")) == 0 {
				t.Error("the new server has seen no call")
			}
		})
	}
}

// TestN08NamesFlap: for a while the name is not known, its server fails or is silent.
// Nothing is sent meanwhile, and what has time waits.
func TestN08NamesFlap(t *testing.T) {
	for _, tc := range []struct {
		name  string
		rcode byte
		mute  bool
	}{{"no such name", 3, false}, {"server failure", 2, false}, {"silent", 0, true}} {
		t.Run(tc.name, func(t *testing.T) {
			dns := &nameServer{}
			dns.resolver(t)
			r := newRig(t)
			addr, port, _ := net.SplitHostPort(r.w.addr)
			dns.set(addr, 0, false)
			r.open(harness.M{"url": "http://mcp.bridge.test:" + port + "/mcp"})
			r.ok(r.call("write", harness.Patience))
			dns.set("", tc.rcode, tc.mute)
			r.resetAll()
			time.Sleep(100 * time.Millisecond)
			out := r.call("write", time.Second)
			if out.Kind != messages.NotSent || r.begins() != 0 {
				t.Errorf("%s %s: %s", out.Kind, out.Code, out.ErrorText())
			}
			if !tc.mute && !strings.Contains(out.ErrorText(), "mcp.bridge.test") {
				t.Errorf("%q does not name the name", out.ErrorText())
			}
			waits := make(chan messages.Outcome, 1)
			go func() { waits <- r.call("write", harness.Patience) }()
			time.Sleep(300 * time.Millisecond)
			dns.set(addr, 0, false)
			r.ok(<-waits)
		})
	}
}

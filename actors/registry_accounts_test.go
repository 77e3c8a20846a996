package actors

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// TestRegistryAccounts drives the registry at random and checks after each step
// that the counters are exact and every difference between them is explained.
func TestRegistryAccounts(t *testing.T) {
	states := []messages.State{messages.StateIdle, messages.StateStarting, messages.StateReady, messages.StateBackoff,
		messages.StateQuarantined, messages.StateDraining, messages.StateStopping, messages.StateStopped, messages.StateBlocked}
	rapid.Check(t, func(t *rapid.T) {
		var last *messages.Snapshot
		var events []messages.Event
		r := newRegistry(RegistryConfig{Config: &config.Config{Enabled: true, Servers: []config.Server{
			{Name: "a", Enabled: true, Deny: []string{"x*"}}, {Name: "b.c", Enabled: true, KeepListed: true}, {Name: "b_c", Enabled: true},
		}}, Publish: func(s *messages.Snapshot) { last = s }, Emit: func(e messages.Event) { events = append(events, e) }, Gate: NewGate(nil), Logger: slog.New(slog.DiscardHandler)})
		r.publish()
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			before := last
			server := rapid.SampledFrom([]string{"a", "b.c", "b_c"}).Draw(t, "server")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				r.serverGone(messages.Key{Server: server})
				r.apply(nil, true)
			case 1, 2:
				tools := rapid.SliceOfNDistinct(rapid.StringMatching(`[xy_.]{1,3}`), 0, 6, func(s string) string { return s }).Draw(t, "tools")
				r.apply(nil, r.listingChanged(server, registryListing(tools...)))
			default:
				r.apply(nil, r.serverChanged(registryRow(server, rapid.SampledFrom(states).Draw(t, "state")).Status))
			}
			registryBalance(t, last)
			offered := slices.Equal(registryNames(before.Catalogue.Tools()), registryNames(last.Catalogue.Tools()))
			if offered != (len(events) == 0) {
				t.Fatalf("%q became %q with %d events", registryNames(before.Catalogue.Tools()), registryNames(last.Catalogue.Tools()), len(events))
			}
			if d := last.Catalogue.Version - before.Catalogue.Version; d > 1 || d == 0 && last.Catalogue != before.Catalogue {
				t.Fatalf("version %d after %d", last.Catalogue.Version, before.Catalogue.Version)
			}
			events = nil
		}
	})
}

func registryBalance(t *rapid.T, s *messages.Snapshot) {
	c := s.Counts
	if c.Registered != len(s.Catalogue.Tools()) || c.Configured != len(s.Servers) {
		t.Fatalf("%+v with %d tools and %d rows", c, len(s.Catalogue.Tools()), len(s.Servers))
	}
	connected, missing, rows := 0, 0, 0
	for _, v := range s.Servers {
		rows += v.Tools
		explained := false
		for _, i := range v.Issues {
			explained = explained || i.Stage != messages.StageRegister && i.Stage != messages.StageAdaptTool
			var n int
			if strings.Contains(i.Message, "hidden by") || strings.Contains(i.Message, "not on offer") {
				if _, err := fmt.Sscanf(i.Message, "%d tool", &n); err != nil {
					t.Fatal(err)
				}
			}
			missing += n
		}
		if v.State == messages.StateReady {
			connected++
		} else if !explained {
			t.Fatalf("%s is %v and nothing says why: %v", v.Name, v.State, v.Issues)
		}
	}
	if connected != c.Connected || c.Discovered != c.Adapted || rows != c.Registered {
		t.Fatalf("%+v with %d connected and %d tools in the rows", c, connected, rows)
	}
	if c.Adapted-c.Registered != missing {
		t.Fatalf("%d adapted, %d registered, %d explained", c.Adapted, c.Registered, missing)
	}
}

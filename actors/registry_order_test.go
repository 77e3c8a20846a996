package actors

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// TestSessionUpComesBehindItsTools: no call is handed out before the router knows what
// came with the session, and the router answers the session itself.
func TestSessionUpComesBehindItsTools(t *testing.T) {
	system := actor.NewActorSystem()
	defer system.Shutdown()
	type arrival struct {
		what   string
		sender *actor.PID
	}
	arrived := make(chan arrival, 100)
	router := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch m := ctx.Message().(type) {
		case messages.CatalogueChanged:
			if _, ok := m.Catalogue.LookupRemote("fs", "fresh"); ok {
				arrived <- arrival{"tools", nil}
			}
		case messages.SessionUp:
			arrived <- arrival{"up", ctx.Sender()}
		}
	}))
	cfg := &config.Config{Servers: []config.Server{{Name: "fs", Enabled: true}}, Enabled: true}
	registry := system.Root.Spawn(NewRegistry(RegistryConfig{Config: cfg, Router: router}))
	session := system.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
	key := messages.Key{Server: "fs"}
	system.Root.Send(registry, messages.ListingChanged{Key: key, Listing: registryListing("fresh")})
	system.Root.RequestWithCustomSender(registry, messages.SessionUp{Key: key, Gen: 1}, session)
	first, second := registryAwait(t, arrived, "the tools"), registryAwait(t, arrived, "the session")
	if first.what != "tools" || second.what != "up" || !second.sender.Equal(session) {
		t.Errorf("%+v and then %+v", first, second)
	}
}

// TestStoredListing: what a server listed in an earlier run is offered, and says so,
// until it lists again; the same list again is no news.
func TestStoredListing(t *testing.T) {
	cfg := &config.Config{Servers: []config.Server{{Name: "fs", Enabled: true, Connect: config.ConnectLazy}}, Enabled: true}
	r := startRegistry(t, cfg)
	r.next()
	stored := registryListing("read")
	stored.StoredAt = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	r.send(messages.ListingChanged{Key: messages.Key{Server: "fs"}, Listing: stored})
	s := r.next()
	if got := registryNames(s.Catalogue.Tools()); len(got) != 1 || !s.Catalogue.Knows("fs") || s.Counts.Discovered != 1 || s.Counts.Connected != 0 {
		t.Fatalf("%v %+v", got, s.Counts)
	}
	if i := s.Servers[0].Issues; len(i) != 2 || i[1].Message != "offered as it listed them on 2026-01-02 03:04 UTC: it lists again when it starts" {
		t.Errorf("%v", i)
	}
	version := s.Catalogue.Version
	r.send(messages.ListingChanged{Key: messages.Key{Server: "fs"}, Listing: registryListing("read")})
	if s = r.next(); s.Catalogue.Version != version || len(s.Servers[0].Issues) != 1 {
		t.Errorf("version %d after %d, %v", s.Catalogue.Version, version, s.Servers[0].Issues)
	}
}

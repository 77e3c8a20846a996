package actors

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/actors/internal/catalogue"
	"mcpbridge/actors/internal/policy"
	"mcpbridge/config"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// RegistryConfig is what the registry needs. Publish and Emit are called from the
// actor and must not block.
type RegistryConfig struct {
	Config  *config.Config
	Publish func(*messages.Snapshot)
	Emit    Emit
	Router  *actor.PID
	Logger  *slog.Logger
	// Gate is shared with the router and the callers; nil for one of its own.
	Gate *Gate
	// Pins remembers definitions; nil takes every one as it comes.
	Pins Pins
}

// NewRegistry returns the properties of the registry actor. It publishes a first
// snapshot when it starts, with every server of the configuration in it, and a new
// one after each ServerChanged, ListingChanged and ServerGone. When tools or the
// set of known servers changed, the version grows and the router hears of it before
// anybody else can see it, so that a call made on a snapshot never meets a router
// that does not know it yet.
//
// A restart in place keeps what the registry knows: handlers replace state as a
// whole, so a message that could not be handled has changed nothing.
func NewRegistry(cfg RegistryConfig) *actor.Props {
	if cfg.Config == nil {
		cfg.Config = &config.Config{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Publish == nil {
		cfg.Publish = func(*messages.Snapshot) {}
	}
	if cfg.Emit == nil {
		cfg.Emit = func(messages.Event) {}
	}
	if cfg.Gate == nil {
		cfg.Gate = NewGate(cfg.Config)
	}
	r := newRegistry(cfg)
	return actor.PropsFromProducer(func() actor.Actor { return r })
}

// maxScreened bounds the schema text of one listing that the registry looks at by
// itself: about a second's work, during which it hears nothing else.
const maxScreened = 4 << 20

// registry is who is up and which tools there are.
type registry struct {
	cfg      RegistryConfig
	views    map[string]func(messages.Tool) bool
	keep     map[string]bool // servers with keep_listed
	rows     map[messages.Key]serverRow
	parts    map[string]catalogue.Part   // by server: its last listing, once there was one
	listings map[string]messages.Listing // what the parts were built from

	merged  catalogue.Merged
	known   map[string]bool // servers with a part
	current *messages.Catalogue
}

func newRegistry(cfg RegistryConfig) *registry {
	r := &registry{cfg: cfg, views: map[string]func(messages.Tool) bool{}, keep: map[string]bool{},
		rows: map[messages.Key]serverRow{}, parts: map[string]catalogue.Part{}, listings: map[string]messages.Listing{}}
	r.configure(cfg.Config)
	r.merged, r.known = catalogue.Merge(nil), map[string]bool{}
	r.current = messages.NewCatalogue(1, nil, r.views, r.known)
	return r
}

// configure takes what a configuration says beside the rules, which are the gate's.
func (r *registry) configure(c *config.Config) {
	r.cfg.Config, r.views, r.keep = c, map[string]func(messages.Tool) bool{}, map[string]bool{}
	for name, v := range c.Views {
		r.views[name] = catalogue.View{Effects: v.Effects, Tools: v.Tools, Servers: v.Servers}.Admits(policy.MatchAny)
	}
	now := time.Now()
	for _, s := range c.Servers {
		r.keep[s.Name] = s.KeepListed
		if _, known := r.rows[s.Key()]; !known {
			r.rows[s.Key()] = configuredRow(c, s, now)
		}
	}
}

// Receive implements actor.Actor.
func (r *registry) Receive(ctx actor.Context) {
	planted.Meet("registry", ctx.Message())
	switch m := ctx.Message().(type) {
	case *actor.Started:
		// After a restart this repeats what was said, which harms nobody.
		r.tellRouter(ctx)
		r.publish()
	case messages.ServerChanged:
		r.apply(ctx, r.serverChanged(m.Status))
	case messages.ListingChanged:
		r.apply(ctx, r.listingChanged(m.Key.Server, m.Listing))
	case messages.SessionUp:
		// What came with the session has been told to the router by now.
		if r.cfg.Router != nil {
			ctx.RequestWithCustomSender(r.cfg.Router, m, ctx.Sender())
		}
	case messages.PinsChanged:
		r.apply(ctx, r.pinsChanged(m.Server))
	case messages.ServerGone:
		r.serverGone(m.Key)
		r.apply(ctx, true)
	case Reconfigure:
		r.reconfigure(ctx, m)
	case messages.Message:
		r.cfg.Logger.Error("bug: the registry got a message that is not for it", "type", fmt.Sprintf("%T", m))
	}
}

// serverChanged takes a status row and reports whether the catalogue depends on
// the difference: the tools came on offer or left it, or they are off it for
// another reason.
func (r *registry) serverChanged(status messages.ServerStatus) (rebuild bool) {
	key := messages.Key{Server: status.Name, Instance: status.Instance}
	listed, why := r.offered(key.Server)
	r.rows[key] = serverRow{status: status, issues: serverIssues(status)}
	nowListed, nowWhy := r.offered(key.Server)
	_, hasTools := r.parts[key.Server]
	return hasTools && (nowListed != listed || !nowListed && nowWhy != why)
}

// listingChanged takes a server's definitions. Those of a server without a row are
// late news of one that was removed; they do not bring it back.
func (r *registry) listingChanged(server string, listing messages.Listing) (rebuild bool) {
	if _, state := r.offered(server); state == "" {
		r.cfg.Logger.Debug("dropped the tools of a server that is gone", "server", server)
		return false
	}
	part := r.part(server, listing)
	r.pin(&part, definitions(listing))
	r.parts[server], r.listings[server] = part, listing
	return true
}

// serverGone forgets an instance, and with the last one the server's tools.
func (r *registry) serverGone(key messages.Key) {
	delete(r.rows, key)
	for other := range r.rows {
		if other.Server == key.Server {
			return
		}
	}
	delete(r.parts, key.Server)
	delete(r.listings, key.Server)
}

// part builds what one server brings to the catalogue.
func (r *registry) part(server string, listing messages.Listing) catalogue.Part {
	g := r.cfg.Gate
	budget, unseen, dropped := maxScreened, 0, 0
	input := func(d messages.ToolDef) string {
		if budget -= len(d.InputSchema); budget < 0 {
			unseen++
			return ""
		}
		return g.inputProblem(d)
	}
	problems := func(d messages.ToolDef) []string {
		if budget < 0 {
			return nil
		}
		return g.schemaProblems(d)
	}
	output := func(d messages.ToolDef) (bool, string) {
		if len(d.OutputSchema) == 0 {
			return true, ""
		}
		if budget -= len(d.OutputSchema); budget < 0 {
			dropped++
			return false, ""
		}
		why := g.outputProblem(d)
		return why == "", why
	}
	p := catalogue.NewPart(server, listing, catalogue.Rules{
		Effect: func(d messages.ToolDef) (messages.Effect, messages.EffectSource) { return g.effect(server, d) },
		// The word for the catalogue at large; the router asks again for the caller at hand.
		Decide:  func(t messages.Tool) (messages.Permission, string) { return g.Decide(t, "", "") },
		Visible: func(remote string) bool { return g.visible(server, remote) },
		Limits:  func(remote string) messages.ToolLimits { return g.limits(server, remote) },
		Input:   input, Problems: problems, Output: output,
		Reserved: func(name string) bool { return slices.Contains(r.cfg.Config.ReservedNames, name) },
	})
	if unseen > 0 {
		p.Issues = append(p.Issues, messages.Issue{Stage: messages.StageAdaptTool, Severity: messages.SeverityWarning, Server: server,
			Message: fmt.Sprintf("the input schemas of %s are looked at only when they are called: together the schemas have more than %d MiB",
				catalogue.Count(unseen, "tool"), maxScreened>>20)})
	}
	if dropped > 0 {
		p.Issues = append(p.Issues, messages.Issue{Stage: messages.StageAdaptTool, Severity: messages.SeverityWarning, Server: server,
			Message: fmt.Sprintf("the output schemas of %s are not passed on: together the schemas have more than %d MiB",
				catalogue.Count(dropped, "tool"), maxScreened>>20)})
	}
	return p
}

// offered reports whether a server's tools are on offer: one of its instances is
// in a state that lists, or the operator wants them kept. state names the state of
// an instance; it is empty when there is none.
func (r *registry) offered(server string) (listed bool, state string) {
	for key, row := range r.rows {
		if key.Server != server {
			continue
		}
		if row.status.State.Lists() {
			listed = true
		}
		state = max(state, row.status.State.String()) // any one of them, but always the same
	}
	return listed || r.keep[server] && state != "", state
}

// apply builds the catalogue again if it must be, and tells everybody. The order
// matters: first the router, then the snapshot, then the event, so that whoever
// learns of a tool finds that those before them know it already.
func (r *registry) apply(ctx actor.Context, rebuild bool) {
	offered := false
	if rebuild {
		before := r.current
		if r.remerge(false) {
			r.tellRouter(ctx)
			offered = !catalogue.Offered(before.All(), r.merged.Tools)
		}
	}
	r.tell(offered)
}

// tell publishes what there is, and the event where clients may see other tools.
func (r *registry) tell(offered bool) {
	r.publish()
	if offered {
		r.cfg.Emit(messages.Event{Type: messages.EventCatalogue, Version: r.current.Version, Count: len(r.current.Tools())})
	}
}

// remerge builds the catalogue from the parts and makes it the current one if it
// differs from the one before, or in any case.
func (r *registry) remerge(anyway bool) (changed bool) {
	sources := make([]catalogue.Source, 0, len(r.parts))
	known := make(map[string]bool, len(r.parts))
	for server, part := range r.parts {
		listed, why := r.offered(server)
		sources = append(sources, catalogue.Source{Part: part, Listed: listed, Why: why})
		known[server] = true
	}
	before := r.merged
	r.merged = catalogue.Merge(sources)
	if !anyway && maps.Equal(r.known, known) && slices.EqualFunc(before.Tools, r.merged.Tools, catalogue.Same) {
		return false
	}
	r.known = known
	r.current = messages.NewCatalogue(r.current.Version+1, r.merged.Tools, r.views, known)
	return true
}

func (r *registry) tellRouter(ctx actor.Context) {
	if r.cfg.Router != nil {
		ctx.Send(r.cfg.Router, messages.CatalogueChanged{Catalogue: r.current})
	}
}

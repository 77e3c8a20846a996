package supervisor

import (
	"context"
	"log/slog"
	"time"

	"mcpbridge/actors/upstream"
	"mcpbridge/actors/upstream/own"
	"mcpbridge/messages"
	"mcpbridge/supervisor/gateway"
)

// Option changes how Open builds a bridge.
type Option func(*options)

type options struct {
	startupWait *time.Duration
	handler     slog.Handler
	stateDir    string
	version     string
	url         string
	reserved    []string
	hooks       []func(messages.Event)
	dial        upstream.DialFunc
	gateway     gateway.Options
	journaling  journaling
	ownership   own.Options
	approver    messages.Asker
	issues      []messages.Issue
}

// WithStartupWait makes Open wait until every server that is started at once has
// listed its tools or failed, at most d, and replaces list_wait by d for the waits
// after that. Without it Open returns as soon as the tree stands.
func WithStartupWait(d time.Duration) Option { return func(o *options) { o.startupWait = &d } }

// WithLogHandler says where the bridge logs. Without it nothing is logged: Status,
// Events and Logs tell everything.
func WithLogHandler(h slog.Handler) Option { return func(o *options) { o.handler = h } }

// WithStateDir names a directory in which the bridge keeps what should outlive it:
// which command lines have started before, the caches of uvx servers, the journal of
// side effects, and what a person has agreed to. Without it nothing is written. One bridge each.
func WithStateDir(dir string) Option { return func(o *options) { o.stateDir = dir } }

// WithApprover asks f about every call that a permission rule wants to be asked
// about, in place of the queue and of the calling client. f runs on a goroutine of its
// own and may call back into the bridge; its context ends with the call's deadline, and
// when the call ends otherwise. An error or a panic is a no; messages.ErrCannotAsk
// leaves the call to the queue. While f thinks, `bridgectl approve` may answer too.
func WithApprover(f func(ctx context.Context, a messages.Approval) (bool, error)) Option {
	return func(o *options) { o.approver = f }
}

// WithIssues are problems of the host's own that Status shows for the life of the bridge.
func WithIssues(issues ...messages.Issue) Option {
	return func(o *options) { o.issues = append(o.issues, issues...) }
}

// WithVersion is the version that the bridge gives to servers and clients.
func WithVersion(v string) Option { return func(o *options) { o.version = v } }

// WithURL is the address that Status shows; SetURL changes it later.
func WithURL(u string) Option { return func(o *options) { o.url = u } }

// WithReservedNames adds names that no tool may take (requirement C3).
func WithReservedNames(names ...string) Option {
	return func(o *options) { o.reserved = append(o.reserved, names...) }
}

// WithEventHook calls f for every event from the very first one on, in order, from
// one goroutine. Like any subscriber it may call back into the bridge, and one that
// is too slow hears a gap event.
func WithEventHook(f func(messages.Event)) Option {
	return func(o *options) { o.hooks = append(o.hooks, f) }
}

// WithDialer replaces the way servers are reached: for tests and for programs that
// bring servers of their own.
func WithDialer(d upstream.DialFunc) Option { return func(o *options) { o.dial = d } }

// WithGatewayOptions configures the endpoint: authentication, hosts, origins. An
// empty Version is what WithVersion says, an empty Discovery what the configuration says.
func WithGatewayOptions(g gateway.Options) Option { return func(o *options) { o.gateway = g } }

// WithGuardian gives the path of bridgectl, of this very version: the bridge runs it as its
// guardian, a process that kills what the bridge started if the bridge itself is killed.
// Without it Status says what is then not covered. Linux only.
func WithGuardian(path string) Option { return func(o *options) { o.ownership.Guardian = path } }

// WithAdoption is for programs that start no process but through the bridge: orphans of
// its servers become children of the program (it turns into a child subreaper), and every
// child that the bridge did not start is reaped, and killed at the end. Linux only.
func WithAdoption() Option { return func(o *options) { o.ownership.Adopt = true } }

// WithOwnershipRung keeps the bridge from using anything stronger than this way to own
// processes: cgroup, subreaper or markers. It is for trying what a system without the
// stronger ones would do.
func WithOwnershipRung(rung string) Option { return func(o *options) { o.ownership.Rung = rung } }

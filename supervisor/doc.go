// Package supervisor is the running bridge and its public API.
//
//	b, err := supervisor.Open(ctx, cfg)
//	defer b.Close(ctx)
//	out := b.Call(ctx, messages.CallTool{Tool: "fs/read_file", Args: json.RawMessage(`{"path":"a"}`)})
//
// # The tree
//
//	bridge root            one-for-one; never escalates
//	 ├─ registry           who is up, which tools; publishes immutable snapshots
//	 ├─ router             gate, lanes, in-flight table; the only place where a call ends
//	 └─ servers            spawn limiter; finds a server by name
//	     └─ server/<name>  life-cycle machine and restart policy; no I/O, long-lived
//	         └─ session/<name>/<gen>   one incarnation
//
// What decides is apart from what acts: restart.go (the restart policy), machine.go
// (the life cycle of one server) and limiter.go are pure, get time and randomness
// as values and hold no goroutine; server.go, servers.go and root.go are the actors
// that feed them and carry out what they say.
//
// # Contract
//
// A *Bridge may be used from any number of goroutines. Call blocks until the one
// outcome of the call is known, and always returns: a bridge that closes answers
// "draining". Call, Close and every other method may be called from inside a
// Subscribe callback or an event hook: each subscriber has a goroutine of its own
// that reads from a shared history, and one that is too slow hears a gap event
// instead of holding anybody up.
//
// Open starts processes, Close ends every one of them, and nothing else of the
// process that hosts the bridge is touched: no globals, nothing on stdout, no signal
// handlers. Nothing is started for a Config with Enabled false.
package supervisor

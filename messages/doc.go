// Package messages holds what the rooms of the bridge say to each other, as plain
// data: no actor references, no types of a dependency, the standard library only.
// Values are immutable once sent.
//
// # Who says what to whom
//
//	Bridge.Call ──Submit, Cancel, Delivered───► router
//	registry ─────CatalogueChanged, SessionUp*► router
//	server/<name> ServerConfigured, ServerStateChanged, SessionDown, DrainServer ► router
//	session ──────SessionLost─────────────────► router
//	worker ───────CallDone, CallProgress──────► router
//	journal ──────Recorded, PriorFound (by the router's own hand)──► router
//	asker ────────Answered (by the router's own hand)───────────► router
//	Bridge ───────QueryApprovals, DecideApproval, PolicyChanged, PatienceChanged ► router
//	Bridge ───────PinsChanged─────────────────► registry
//	Bridge ───────FenceAtStart────────────────► router
//	router ───────Execute, CancelExec─────────► session
//	router ───────RecycleServer, ServerDrained, WakeServer, Retell ► servers ► server/<name>
//	session ──────SessionSpawned, SessionReady, ToolsListed, SessionNoise, SessionLost, SessionEnded ► server/<name>
//	server/<name> StopSession─────────────────► session
//	server/<name> SlotRequest, SlotRelease ◄─SlotGrant─ servers
//	Bridge ───────Operate, StopAll────────────► servers ► server/<name>
//	server/<name> ServerChanged, ListingChanged, SessionUp*, ServerGone ► registry
//
// (* SessionUp is sent with the session as sender, so that the router can answer it. It
// passes through the registry, so that it cannot overtake the tools that came with it.)
//
// # Who settles
//
// Only the router gives a call its outcome, once, on Submit.Reply. A worker that
// brings a CallDone afterwards opens the lane and is otherwise dropped and counted.
// A session that dies brings a CallDone for each of its workers; SessionDown
// settles whatever is left of that generation.
//
// # Generations
//
// Everything asynchronous carries the generation of the incarnation that it is
// about, and is dropped when that is not the current one. Generations come from
// one counter of the daemon's life and are never used twice.
package messages

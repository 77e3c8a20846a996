// Package actors holds the three kinds of actor that carry the bridge's work:
//
//   - router: gate, lanes, in-flight table and the one place where a call ends;
//   - registry: who is up and which tools there are; publishes immutable snapshots;
//   - session: one incarnation of one server, that is one process (or HTTP
//     connection) and the MCP session with it.
//
// Who supervises them, and when a next incarnation is started, is the business of
// package supervisor. What they say to each other is package messages, and nothing
// else passes between them.
//
// # Contract
//
// No Receive blocks: whatever waits runs in a goroutine of its own and comes back
// as a message. No actor asks another and waits; questions carry a reply channel
// of capacity one. Everything asynchronous carries the generation that it is about
// and is dropped when that is not the current one.
//
// A session never restarts in place. When its incarnation is over it either stops
// (it was asked to) or panics with a *SessionFailure, which its parent's
// HandleFailure turns into a stop; either way the parent sees one Terminated, and
// by then the process tree is dead or Exit.TreeAlive says that nobody could prove
// it. Handlers of Stopping and Stopped neither panic nor block: in protoactor the
// first would bring the actor back to life and the second would hold up the tree.
package actors

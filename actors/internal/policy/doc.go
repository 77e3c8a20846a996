// Package policy decides, and does nothing else: what a tool may do to the world
// (Effects), whether a caller may use it (Permissions), and whether a call's
// arguments are what the tool asked for (ParseArgs, CompileSchema).
//
// # Contract
//
// Everything here is a pure function of its arguments: no clock, no goroutine, no
// I/O, no global that changes. Values may be shared between goroutines once built.
//
// Permissions fail closed: what no rule covers, and what makes no sense, is denied.
// The check of arguments is a courtesy to the caller, not a wall: it refuses what
// certainly breaks the tool's schema, and where it cannot be sure (a schema that
// is hostile, odd or too expensive) it says nothing and leaves the judgement to
// the server. What it must never do is hang, crash, or refuse a call that is right.
package policy

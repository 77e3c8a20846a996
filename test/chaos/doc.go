// Package chaos breaks things under load and compares what the bridge promised with
// what the servers' own witness log says happened.
//
// TestChaos kills servers inside one process. TestDaemonStorm runs the real daemon
// over six stdio servers and two remote ones, breaks servers, wrappers, pipes, calls
// and the daemon itself, lets an operator stop, start, drain, restart and reset servers
// at the worst moments, then lets everything come to rest and hands all accounts to
// the checker of package history. It lasts 30 s in the ordinary test run; with
// MCPBRIDGE_CHAOS=DURATION (`make chaos DURATION=5m`) as long as that says. A storm with
// violations saves its accounts under .run; MCPBRIDGE_HISTORY=FILE with the tests of
// package history looks at them again.
//
// TestSquall is the same storm over three short lives, for package test/planted, which
// runs it over bridges with planted bugs.
package chaos

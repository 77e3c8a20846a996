// Mcpserver is the MCP server that the tests run against: honest by default, and
// with a switch for each way in which a server can go wrong. On stdio it speaks
// JSON-RPC by hand, so that it can misbehave byte by byte; with -http it is the
// official SDK's server with faults in front of it.
//
// It keeps its own account of what it did (-witness, see package witness), which
// the tests believe over anything that the bridge says.
//
// # Tools
//
// Every call may carry `nonce` (its name in the witness log), `sleep_ms` (time
// between begin and end) and `fault` (one of the call faults below, for this call
// only).
//
//	read          a read; answers with its nonce
//	write         a side effect: appends its nonce to the -ledger file
//	put           like write, and says of itself that it is idempotent
//	echo          its arguments, byte for byte, as text and structuredContent
//	blocks        one content block of each kind, an unknown one, big integers, _meta
//	big           text of `bytes` bytes
//	nest          structuredContent nested `depth` times
//	fail          isError with `message` as text (none when empty)
//	rpc_error     a JSON-RPC error with `code`, `message`, `data`
//	inc           counts its calls in this process
//	env           the process's environment as an object
//	pid           pid, parent and process group of the process that answers
//	slow          sleeps `ms`
//	add_tool      adds a tool `name` and says list_changed; remove_tool takes it away
//	relist        says list_changed (with -define only)
//	crash         exits with `code` before it answers
//
// # Switches
//
//	-name NAME            what it calls itself
//	-witness FILE         append begin and end of each call
//	-ledger FILE          where side effects go
//	-record FILE          append each request line as it came
//	-off FILE             while FILE exists, start without any fault
//	-tools N              N more tools, extra_0001 and so on
//	-tool-bytes N         pad each of their descriptions to N bytes
//	-page-size N          tools in one page of tools/list
//	-list FILE            list the entries of FILE instead (a JSON array, read anew each time; a
//	                      call of one of them is an echo); list_changed when FILE changes
//	-list-race FILE       say list_changed while the first listing is answered; FILE is the next one
//	-instructions TEXT    instructions of the initialize result
//	-define FILE          other and more tools: {"hide":[names],"tools":[definitions]}, read
//	                      at each use; all of them append to the ledger
//	-modern               answer server/discover for 2026-07-28
//	-protocol V           answer initialize with this revision
//
// Start and end of the process:
//
//	-start-delay D        do nothing at all for D
//	-exit-on WHAT         end on: start, discover, initialize, initialized, list, listed, call, answered
//	-exit-delay D         ... D later
//	-exit-code N          ... with this status
//	-silent LIST          never answer: discover, initialize, list, call, ping or all
//	-ignore-term          take no notice of SIGTERM, SIGINT and SIGHUP
//	-ignore-eof           live on when stdin ends
//	-wrap                 be the child of a wrapper that only waits for it
//	-grandchild           start a child that holds stdout and stderr open and sleeps
//	-setsid               ... in a session of its own
//	-stderr TEXT          say this on stderr first
//	-escape LIST          start sleepers that are hard to find, deaf to SIGTERM, holding stdout:
//	                      child, nohup (a group of its own), setsid (a session of its own),
//	                      double (that, and orphaned), bare (setsid, no environment), lost
//	                      (double, no environment)
//	-bomb N               start N sleepers as fast as can be; says on stderr how many there are
//	-hog N                take N MiB of memory; says so on stderr
//	-report FILE          write descriptors, limits and rights of this process, as JSON
//	-endings FILE         append eof, term and saved as they come
//	-end-work D           ... with D of work between eof and saved
//	-stderr-flood N       write N bytes of lines to stderr at once (-1: without end)
//
// The stream:
//
//	-banner               a line that is no JSON before anything else
//	-bom                  a byte order mark before the first line
//	-crlf                 lines end in CR LF
//	-trailing-blanks      blanks and empty lines around each message
//	-split-writes         each message in pieces of seven bytes
//	-stop-reading N       read no more after N requests
//	-stall FILE           read nothing while FILE exists, not even the end of stdin
//	-list-changed D       say list_changed every D
//	-progress D           report progress every D while a call sleeps
//	-honour-cancel HOW    on a cancelled notification stop and: answer, or stay silent
//	-cursor HOW           tools/list never ends: repeat (one cursor for ever), endless
//	-odd-tools            list entries that are null, nameless, double, ill-typed, cyclic
//
// Faults of calls. As a switch it strikes every call of -fault-tool, after
// -fault-after of them:
//
//	-fault-tool NAME      the tool that is struck (default: every one)
//	-fault-after N        the number of calls that pass before
//	-crash-before-begin   end without a trace
//	-crash-after-begin    end between the witness's begin and its end
//	-crash-after-end      end between the witness's end and the answer
//	-never                act, and never answer
//	-noise                a line that is no JSON before the answer
//	-half-frame           half of the answer, then end
//	-close-stdout         close stdout instead of answering, and live on (stdio)
//	-no-body              an answer that is neither result nor error
//	-dup-reply            the answer twice
//	-late-reply           the answer again 200 ms later
//	-wrong-id             first an answer to something that was never asked
//	-string-id            the id of the answer as a string
//	-huge-frame           an answer of 48 MiB
//	-deep                 an answer nested 100,000 times
//
// HTTP:
//
//	-http ADDR            serve Streamable HTTP; prints {"url":...} on stdout
//	-http-log FILE        append one JSON line for each request: method, rpc, headers
//	-http-json            answer in application/json instead of an event stream
//	-http-stateless       no sessions (the only way to speak 2026-07-28 over HTTP)
//	-http-header N:V      demand this header, else 401
//	-http-status N        answer every tools/call with this status
//	-http-redirect URL    answer every POST with 307 to URL
//	-http-hang            accept requests and never answer them
//	-http-cut             cut the connection instead of answering a tools/call
//	-http-forget N        forget the session after N calls (404)
//	-http-no-get          405 to GET
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"mcpbridge/test/witness"
)

func main() {
	o := parse(os.Args[1:])
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "mcpserver:", err)
		os.Exit(1)
	}
}

func run(o *options) error {
	if o.wrap {
		return wrapSelf()
	}
	if o.ignoreTerm {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	if o.sleeper {
		if o.escape == "" {
			sleepForever()
		}
		return startEscapes(o) // the one between that orphans it
	}
	if o.stderr != "" {
		fmt.Fprintln(os.Stderr, o.stderr)
	}
	if o.exitOn == "start" {
		time.Sleep(o.exitDelay)
		os.Exit(o.exitCode)
	}
	time.Sleep(o.startDelay)
	if o.stderrFlood != 0 {
		go flood(os.Stderr, o.stderrFlood)
	}
	if o.grandchild || o.setsid {
		if err := startGrandchild(o.setsid); err != nil {
			return err
		}
	}
	if err := misbehave(o); err != nil {
		return err
	}
	s := &server{o: o, tools: toolTable(o), cancels: map[string]func(){}}
	if o.witness != "" {
		log, err := witness.Open(o.witness, o.name)
		if err != nil {
			return err
		}
		s.log = log
	}
	if o.http != "" {
		return serveHTTP(s)
	}
	return serveStdio(s, os.Stdin, os.Stdout)
}

// parse reads the switches; flag.ExitOnError ends the process on a bad one.
func parse(args []string) *options {
	o := &options{callFaults: map[string]*bool{}}
	fs := flag.NewFlagSet("mcpserver", flag.ExitOnError)
	o.register(fs)
	_ = fs.Parse(args)
	if o.off != "" {
		if _, err := os.Stat(o.off); err == nil {
			o.calm()
		}
	}
	return o
}

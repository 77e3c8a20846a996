package main

import (
	"flag"
	"slices"
	"strings"
	"time"
)

// options are the switches; package main documents each.
type options struct {
	name, witness, ledger, record, off string
	tools, toolBytes, pageSize         int
	list, listRace, instructions       string
	modern                             bool
	define                             string
	protocol                           string

	startDelay, exitDelay time.Duration
	exitOn                string
	exitCode              int
	silent                string
	ignoreTerm, ignoreEOF bool
	wrap, sleeper         bool
	grandchild, setsid    bool
	stderr                string
	stderrFlood           int64
	escape, endings       string
	report                string
	bomb, hog             int
	endWork               time.Duration

	banner, bom, crlf, blanks, split bool
	stopReading                      int
	stall                            string
	listChanged, progress            time.Duration
	honourCancel, cursor             string
	oddTools                         bool

	faultTool  string
	faultAfter int
	callFaults map[string]*bool

	http, httpLog, httpHeader, httpRedirect               string
	httpJSON, httpStateless, httpHang, httpCut, httpNoGet bool
	httpStatus, httpForget                                int
}

// callFault names one way in which a single call goes wrong.
type callFault struct{ name, help string }

// The call faults, as switches and as values of a call's `fault` argument.
const (
	crashBeforeBegin = "crash-before-begin"
	crashAfterBegin  = "crash-after-begin"
	crashAfterEnd    = "crash-after-end"
	never            = "never"
	noise            = "noise"
	halfFrame        = "half-frame"
	closeStdout      = "close-stdout"
	noBody           = "no-body"
	dupReply         = "dup-reply"
	lateReply        = "late-reply"
	wrongID          = "wrong-id"
	stringID         = "string-id"
	hugeFrame        = "huge-frame"
	deep             = "deep"
)

var callFaults = []callFault{
	{crashBeforeBegin, "end without a trace"},
	{crashAfterBegin, "end between the witness's begin and its end"},
	{crashAfterEnd, "end between the witness's end and the answer"},
	{never, "act, and never answer"},
	{noise, "a line that is no JSON before the answer"},
	{halfFrame, "half of the answer, then end"},
	{closeStdout, "close stdout instead of answering, and live on"},
	{noBody, "an answer that is neither result nor error"},
	{dupReply, "the answer twice"},
	{lateReply, "the answer again 200 ms later"},
	{wrongID, "first an answer to something that was never asked"},
	{stringID, "the id of the answer as a string"},
	{hugeFrame, "an answer of 48 MiB"},
	{deep, "an answer nested 100,000 times"},
}

func (o *options) register(fs *flag.FlagSet) {
	fs.StringVar(&o.name, "name", "fixture", "what it calls itself")
	fs.StringVar(&o.witness, "witness", "", "append begin and end of each call to `FILE`")
	fs.StringVar(&o.ledger, "ledger", "", "`FILE` where side effects go")
	fs.StringVar(&o.record, "record", "", "append each request line to `FILE`")
	fs.StringVar(&o.off, "off", "", "while `FILE` exists, start without any fault")
	fs.IntVar(&o.tools, "tools", 0, "`N` more tools")
	fs.IntVar(&o.toolBytes, "tool-bytes", 0, "pad their descriptions to `N` bytes")
	fs.IntVar(&o.pageSize, "page-size", 0, "`N` tools in one page")
	fs.StringVar(&o.list, "list", "", "list the entries of this `FILE` (a JSON array) instead, and say list_changed when it changes")
	fs.StringVar(&o.listRace, "list-race", "", "say list_changed during the first listing, whose successor is this `FILE`")
	fs.StringVar(&o.instructions, "instructions", "", "the `TEXT` of initialize's instructions")
	fs.StringVar(&o.define, "define", "", "more and other tools, from `FILE`, read at each use")
	fs.BoolVar(&o.modern, "modern", false, "answer server/discover for 2026-07-28")
	fs.StringVar(&o.protocol, "protocol", "2025-11-25", "answer initialize with this `REVISION`")

	fs.DurationVar(&o.startDelay, "start-delay", 0, "do nothing at all for this long")
	fs.StringVar(&o.exitOn, "exit-on", "", "end on: start, discover, initialize, initialized, list, listed, call, answered")
	fs.DurationVar(&o.exitDelay, "exit-delay", 0, "... that much later")
	fs.IntVar(&o.exitCode, "exit-code", 1, "... with this status")
	fs.StringVar(&o.silent, "silent", "", "never answer: discover, initialize, list, call, ping or all (comma-separated)")
	fs.BoolVar(&o.ignoreTerm, "ignore-term", false, "take no notice of SIGTERM, SIGINT and SIGHUP")
	fs.BoolVar(&o.ignoreEOF, "ignore-eof", false, "live on when stdin ends")
	fs.BoolVar(&o.wrap, "wrap", false, "be the child of a wrapper that only waits for it")
	fs.BoolVar(&o.sleeper, "sleeper", false, "only sleep (what -grandchild starts)")
	fs.BoolVar(&o.grandchild, "grandchild", false, "start a child that holds stdout and stderr open")
	fs.BoolVar(&o.setsid, "setsid", false, "... in a session of its own")
	fs.StringVar(&o.stderr, "stderr", "", "say this `TEXT` on stderr first")
	fs.StringVar(&o.escape, "escape", "", "start sleepers that are hard to find (comma-separated): child, setsid, double, nohup, bare, lost")
	fs.IntVar(&o.bomb, "bomb", 0, "start `N` sleepers as fast as can be, and say on stderr how many there are")
	fs.IntVar(&o.hog, "hog", 0, "take `N` MiB of memory, and say so on stderr")
	fs.StringVar(&o.report, "report", "", "write descriptors, limits and rights of this process to `FILE`")
	fs.StringVar(&o.endings, "endings", "", "append eof, term and saved to `FILE` as they come")
	fs.DurationVar(&o.endWork, "end-work", 0, "... with so much work between eof and saved")
	fs.Int64Var(&o.stderrFlood, "stderr-flood", 0, "write `N` bytes to stderr at once (-1: without end)")

	fs.BoolVar(&o.banner, "banner", false, "a line that is no JSON before anything else")
	fs.BoolVar(&o.bom, "bom", false, "a byte order mark before the first line")
	fs.BoolVar(&o.crlf, "crlf", false, "lines end in CR LF")
	fs.BoolVar(&o.blanks, "trailing-blanks", false, "blanks and empty lines around each message")
	fs.BoolVar(&o.split, "split-writes", false, "each message in pieces of seven bytes")
	fs.IntVar(&o.stopReading, "stop-reading", 0, "read no more after `N` requests")
	fs.StringVar(&o.stall, "stall", "", "read nothing while `FILE` exists")
	fs.DurationVar(&o.listChanged, "list-changed", 0, "say list_changed that often")
	fs.DurationVar(&o.progress, "progress", 0, "report progress that often while a call sleeps")
	fs.StringVar(&o.honourCancel, "honour-cancel", "", "when cancelled, stop and: answer, silent")
	fs.StringVar(&o.cursor, "cursor", "", "tools/list never ends: repeat, endless")
	fs.BoolVar(&o.oddTools, "odd-tools", false, "list entries that are null, nameless, double, ill-typed, cyclic")

	fs.StringVar(&o.faultTool, "fault-tool", "", "the tool that call faults strike (default: every one)")
	fs.IntVar(&o.faultAfter, "fault-after", 0, "the number of calls that pass before")
	for _, f := range callFaults {
		o.callFaults[f.name] = fs.Bool(f.name, false, f.help)
	}

	fs.StringVar(&o.http, "http", "", "serve Streamable HTTP on `ADDR`; prints {\"url\":...} on stdout")
	fs.StringVar(&o.httpLog, "http-log", "", "append one JSON line for each request to `FILE`")
	fs.BoolVar(&o.httpJSON, "http-json", false, "answer in application/json")
	fs.BoolVar(&o.httpStateless, "http-stateless", false, "no sessions")
	fs.StringVar(&o.httpHeader, "http-header", "", "demand this header (`NAME:VALUE`), else 401")
	fs.IntVar(&o.httpStatus, "http-status", 0, "answer every tools/call with this status")
	fs.StringVar(&o.httpRedirect, "http-redirect", "", "answer every POST with 307 to `URL`")
	fs.BoolVar(&o.httpHang, "http-hang", false, "accept requests and never answer them")
	fs.BoolVar(&o.httpCut, "http-cut", false, "cut the connection instead of answering a tools/call")
	fs.IntVar(&o.httpForget, "http-forget", 0, "forget the session after `N` calls")
	fs.BoolVar(&o.httpNoGet, "http-no-get", false, "405 to GET")
}

// calm switches every fault off and keeps identity, files and size.
func (o *options) calm() {
	*o = options{name: o.name, witness: o.witness, ledger: o.ledger, record: o.record, tools: o.tools, toolBytes: o.toolBytes, list: o.list, instructions: o.instructions, define: o.define,
		pageSize: o.pageSize, modern: o.modern, protocol: "2025-11-25", wrap: o.wrap, sleeper: o.sleeper, callFaults: map[string]*bool{},
		http: o.http, httpLog: o.httpLog, httpJSON: o.httpJSON, httpStateless: o.httpStateless}
}

// faulty reports whether the fault strikes the n-th call (from 1) of the tool.
func (o *options) faulty(fault, tool string, n int) bool {
	set := o.callFaults[fault]
	return set != nil && *set && (o.faultTool == "" || o.faultTool == tool) && n > o.faultAfter
}

// isSilent reports whether requests of that kind are never answered.
func (o *options) isSilent(kind string) bool {
	list := strings.Split(o.silent, ",")
	return slices.Contains(list, "all") || kind != "" && slices.Contains(list, kind)
}

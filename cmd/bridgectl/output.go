package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/supervisor/daemon"
)

// printer is the only place that knows how things look. Every foreign string goes
// through sanitise, oneLine or escapeJSON here.
type printer struct {
	w     io.Writer
	tty   bool // symbols, and indented JSON
	color bool
}

// newPrinter looks at the stream and the environment.
func newPrinter(w io.Writer, env func(string) (string, bool), noColor bool) printer {
	p := printer{w: w}
	if f, ok := w.(*os.File); ok {
		fi, err := f.Stat()
		p.tty = err == nil && fi.Mode()&os.ModeCharDevice != 0
	}
	term, _ := env("TERM")
	no, _ := env("NO_COLOR")
	p.color = p.tty && !noColor && no == "" && term != "dumb" && runtime.GOOS != "windows"
	return p
}

// json writes v as JSON: on one line, or indented for eyes.
func (p printer) json(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if p.tty {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := p.w.Write(escapeJSON(b.Bytes()))
	return err
}

// ndjson writes v as one line, whoever looks.
func (p printer) ndjson(v any) error {
	p.tty = false
	return p.json(v)
}

// text writes foreign text and ends it with a newline.
func (p printer) text(s string) {
	s = sanitise(s)
	if !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	_, _ = io.WriteString(p.w, s)
}

// line writes one line; foreign parts come in through %s and are cleaned with it.
func (p printer) line(format string, args ...any) {
	_, _ = io.WriteString(p.w, oneLine(fmt.Sprintf(format, args...))+"\n")
}

// Colours, all of the same length, so that columns of a table stay in line.
const (
	plain  = "\x1b[39m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	grey   = "\x1b[90m"
	reset  = "\x1b[0m"
)

func (p printer) paint(colour, s string) string {
	if !p.color {
		return s
	}
	return colour + s + reset
}

// table lines up rows; cells of strangers must be clean already.
func (p printer) table(rows [][]string) {
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		_, _ = fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	_ = t.Flush()
}

// stateLook gives each state a colour and a symbol, so that colour is never the only sign.
func stateLook(s messages.State, degraded bool) (colour, symbol string) {
	switch s {
	case messages.StateReady:
		if degraded {
			return yellow, "●"
		}
		return green, "●"
	case messages.StateStarting, messages.StateBackoff, messages.StateDraining, messages.StateStopping:
		return yellow, "◐"
	case messages.StateQuarantined, messages.StateConfigError, messages.StateBlocked:
		return red, "✗"
	default:
		return grey, "○"
	}
}

func (p printer) state(v messages.ServerStatus) string {
	s := v.State.String()
	if v.Degraded {
		s += " (degraded)"
	}
	colour, symbol := stateLook(v.State, v.Degraded)
	if p.tty {
		s = symbol + " " + s
	}
	return p.paint(colour, s)
}

// ago is a short age.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return short(time.Since(t))
}

// short shows a duration in at most two units.
func short(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func number(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// last tells in a few words why a server is as it is.
func last(v messages.ServerStatus) string {
	var parts []string
	if v.State != messages.StateReady && v.Reason != "" {
		parts = append(parts, v.Reason)
	} else if e := v.LastExit; e != nil {
		parts = append(parts, fmt.Sprintf("%s, %s ago", e.Reason, ago(e.At)))
	}
	if v.NextRetry != nil {
		parts = append(parts, "next try in "+short(time.Until(*v.NextRetry)))
	}
	return cut(oneLine(strings.Join(parts, "; ")), 100)
}

// cut shortens a clean line.
func cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// status shows the table of servers, and what is wrong.
func (p printer) status(st messages.Status, detail bool) {
	if len(st.Servers) == 0 {
		p.line("no server is configured: `bridgectl config init` prints a starter file")
	} else {
		rows := [][]string{{"NAME", p.paint(plain, p.indent("STATE")), "SINCE", "RESTARTS", "PID", "TOOLS", "INFLIGHT", "QUEUED", "LAST"}}
		for _, v := range st.Servers {
			rows = append(rows, []string{oneLine(v.Name), p.state(v), ago(v.Since), fmt.Sprint(v.Restarts), number(v.PID),
				fmt.Sprint(v.Tools), fmt.Sprint(v.InFlight), fmt.Sprint(v.Queued), last(v)})
		}
		p.table(rows)
	}
	if detail {
		for _, v := range st.Servers {
			p.detail(v)
		}
		return
	}
	all := st.Issues
	for _, v := range st.Servers {
		all = append(all, v.Issues...)
	}
	p.issues(all)
	if st.Bridge.Draining {
		p.line("the bridge is draining and takes no new calls")
	}
}

// again begins the next picture of something that is watched: in place on a terminal.
func (p printer) again(first bool) {
	switch {
	case p.color:
		_, _ = io.WriteString(p.w, "\x1b[H\x1b[2J")
	case !first:
		p.line("")
	}
}

// indent makes room for the symbol of the rows below.
func (p printer) indent(s string) string {
	if p.tty {
		return "  " + s
	}
	return s
}

// detail is the long form of one server.
func (p printer) detail(v messages.ServerStatus) {
	p.line("")
	p.line("%s (%s): generation %d, protocol %s, from %s", v.Name, v.Transport, v.Generation, orDash(v.Protocol), orDash(v.Source))
	if v.Reason != "" {
		p.line("  reason: %s", v.Reason)
	}
	if v.NoiseLines > 0 {
		p.line("  %d lines on its stdout were no protocol and were skipped", v.NoiseLines)
	}
	if v.NextRetry != nil {
		p.line("  next try: in %s (%s)", short(time.Until(*v.NextRetry)), v.NextRetry.Format(time.RFC3339))
	}
	if e := v.LastExit; e != nil {
		p.line("  last exit: %s at stage %s, %s ago", e.Reason, e.Stage, ago(e.At))
		if e.Hint != "" {
			p.line("  hint: %s", e.Hint)
		}
		for _, l := range e.StderrTail[max(0, len(e.StderrTail)-10):] {
			p.line("  | %s", l)
		}
	}
	p.issues(v.Issues)
}

// issues shows each problem once, on one line.
func (p printer) issues(list []messages.Issue) {
	seen := map[string]bool{}
	for _, i := range list {
		if seen[i.String()] {
			continue
		}
		seen[i.String()] = true
		colour := red
		if i.Severity == messages.SeverityWarning {
			colour = yellow
		}
		_, _ = fmt.Fprintf(p.w, "%s %s\n", p.paint(colour, string(i.Severity)+":"), oneLine(i.String()))
	}
}

// tools shows the catalogue.
func (p printer) tools(list []messages.Tool, schema bool) {
	if len(list) == 0 {
		p.line("no tool matches; `bridgectl status` shows which servers are ready")
		return
	}
	rows := [][]string{{"TOOL", "EFFECT", "BY", "PERMISSION", "DESCRIPTION"}}
	for _, t := range list {
		first, _, _ := strings.Cut(strings.TrimSpace(t.Def.Description), "\n")
		rows = append(rows, []string{oneLine(t.EndpointName), t.Effect.String(), t.EffectSource.String(), t.Permission.String(), cut(oneLine(first), 70)})
	}
	if !schema {
		p.table(rows)
		return
	}
	for i, r := range rows[1:] {
		var b bytes.Buffer
		if json.Indent(&b, list[i].Def.InputSchema, "  ", "  ") != nil {
			b.Reset()
			b.Write(list[i].Def.InputSchema)
		}
		p.line("%s  %s  %s  %s", r[0], r[1], r[3], r[4])
		p.text("  " + b.String())
	}
}

// calls shows what is in flight and queued.
func (p printer) calls(list []messages.CallInfo) {
	if len(list) == 0 {
		p.line("no call is queued or running")
		return
	}
	rows := [][]string{{"ID", "TOOL", "STATE", "LANE", "POSITION", "AGE", "CLIENT", "BLOCKED BY"}}
	for _, c := range list {
		rows = append(rows, []string{oneLine(c.CallID), oneLine(c.Tool), string(c.State), orDash(c.Lane), number(c.Position),
			short(time.Duration(c.AgeMS * float64(time.Millisecond))), oneLine(orDash(c.Client)), oneLine(orDash(strings.Join(c.BlockedBy, ", ")))})
	}
	p.table(rows)
}

// event shows one event on one line.
func (p printer) event(e messages.Event) {
	p.line("%s  %s", e.Time.Local().Format("15:04:05.000"), e.String())
}

// logColours tell servers apart.
var logColours = []string{"\x1b[36m", "\x1b[35m", "\x1b[34m", "\x1b[32m", "\x1b[33m"}

// logLine shows one line of a server: `|` before its own words, `*` before the bridge's.
func (p printer) logLine(l messages.LogLine, times bool) {
	sep := "|"
	if l.Source != "stderr" {
		sep = "*"
	}
	sum := 0
	for _, b := range []byte(l.Server) {
		sum += int(b)
	}
	head := oneLine(orDash(l.Server)) + " " + sep
	if times {
		head = l.Time.Local().Format("2006-01-02T15:04:05.000") + " " + head
	}
	_, _ = fmt.Fprintf(p.w, "%s %s\n", p.paint(logColours[sum%len(logColours)], head), oneLine(l.Text))
}

// progress shows one progress notification on one line.
func (p printer) progress(params json.RawMessage) {
	var n struct {
		Progress json.Number `json:"progress"`
		Total    json.Number `json:"total"`
		Message  string      `json:"message"`
	}
	if json.Unmarshal(params, &n) != nil {
		p.line("progress: %s", params)
		return
	}
	of := ""
	if n.Total != "" {
		of = "/" + n.Total.String()
	}
	p.line("progress: %s%s %s", n.Progress, of, n.Message)
}

// missing says which servers did not reach what was waited for.
func missing(res control.WaitResult) string {
	var parts []string
	for _, m := range res.Missing {
		s := fmt.Sprintf("%s is %s", m.Server, m.State)
		if m.Reason != "" {
			s += " (" + m.Reason + ")"
		}
		if m.Hopeless {
			s += ", which only a person can change"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}

// started is what `supervise` tells the person once the endpoint serves.
func (p printer) started(plan daemon.Plan, version string, o superviseHints) {
	all := plan.Issues
	var broken int
	for _, s := range plan.Config.Servers {
		if s.Err != nil {
			broken++
			all = append(all, *s.Err)
		}
	}
	p.issues(all)
	if len(plan.Config.Servers) == 0 {
		p.line("no server is configured: `bridgectl config init -w` writes a starter file, `bridgectl supervise --demo` tries a built-in server")
	} else if broken == len(plan.Config.Servers) {
		p.line("no server can run: correct the above, then start the bridge again")
	}
	p.line("mcpbridge %s serves, pid %d", version, os.Getpid())
	p.table([][]string{
		{"endpoint", oneLine(plan.URL)},
		{"token file", oneLine(orElse(plan.TokenFile, "none: auth is off"))},
		{"control", oneLine(plan.Control)},
	})
	p.line("to try:")
	for _, c := range o.commands {
		p.line("  %s", c)
	}
}

// superviseHints are the commands that `supervise` offers to try.
type superviseHints struct{ commands []string }

func orElse(s, d string) string {
	if s == "" {
		return d
	}
	return s
}

// planned is what `supervise --dry-run` shows.
func (p printer) planned(plan daemon.Plan) {
	p.table([][]string{
		{"endpoint", oneLine(plan.URL)},
		{"state directory", oneLine(plan.StateDir)},
		{"control", oneLine(plan.Control)},
		{"token file", oneLine(orElse(plan.TokenFile, "none: auth is off"))},
		{"files read", oneLine(orElse(strings.Join(plan.Config.Files, ", "), "none"))},
	})
	rows := [][]string{{"SERVER", "WOULD", "FROM"}}
	for _, s := range plan.Config.Servers {
		would := "start"
		switch {
		case s.Err != nil:
			would = "not start: " + s.Err.Message
		case s.Blocked != "":
			would = "wait for " + s.Blocked
		case !plan.Config.Enabled || !s.Enabled || s.Connect == "disabled":
			would = "stay disabled"
		case s.Connect == "lazy":
			would = "start at the first call"
		}
		rows = append(rows, []string{oneLine(s.Name), oneLine(would), oneLine(s.Source)})
	}
	if len(rows) > 1 {
		p.line("")
		p.table(rows)
	}
}

// checked is `config check` for people.
func (p printer) checked(r config.CheckReport) {
	p.issues(r.Issues)
	rows := [][]string{{"SERVER", "OK", "ENABLED", "TRANSPORT", "FROM"}}
	for _, s := range r.Servers {
		rows = append(rows, []string{oneLine(s.Name), fmt.Sprint(s.OK), fmt.Sprint(s.Enabled), orDash(s.Transport), oneLine(s.Source)})
	}
	if len(rows) > 1 {
		p.table(rows)
	}
	if r.Valid {
		p.line("valid")
	} else {
		p.line("not valid")
	}
}

// humanSize is a size for people.
func humanSize(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// diagnosis is `doctor` for people, and for pasting.
func (p printer) diagnosis(d diagnosis) {
	p.line("bridgectl %s, %s, %s/%s", d.Version, d.Go, d.OS, d.Arch)
	var rows [][]string
	for _, c := range d.Checks {
		sign := "ok  "
		if !c.OK {
			sign = "FAIL"
		}
		rows = append(rows, []string{sign, c.Name, oneLine(c.Text)})
	}
	for _, v := range d.Programs {
		if v.Path == "" {
			rows = append(rows, []string{"-   ", v.Name, "not found in PATH"})
			continue
		}
		rows = append(rows, []string{"ok  ", v.Name, oneLine(strings.TrimSpace(v.Path + "  " + v.Version))})
	}
	p.table(rows)
	p.issues(d.Issues)
	for _, s := range d.Servers {
		p.line("server %s (%s) %s", s.Name, orDash(s.Transport), s.Command)
		for _, o := range s.Ownership {
			p.line("  - %s", o)
		}
	}
}

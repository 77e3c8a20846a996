package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/supervisor/daemon"
)

// The pictures that people see: one method of the printer for each kind of answer.

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

// last tells in a few words why a server is as it is.
func last(v messages.ServerStatus) string {
	var why, next string
	if v.State != messages.StateReady && v.Reason != "" {
		why = v.Reason
	} else if e := v.LastExit; e != nil {
		why = fmt.Sprintf("%s, %s ago", e.Reason, ago(e.At))
	}
	if v.NextRetry != nil {
		next = "next try in " + short(time.Until(*v.NextRetry))
		if why != "" {
			next = "; " + next
		}
	}
	return cut(oneLine(why), lastWidth-len(next)) + next // a long reason must not hide when it goes on
}

// lastWidth is how much of a row tells why.
const lastWidth = 100

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
	for n, i := range list {
		if slices.ContainsFunc(list[:n], func(e messages.Issue) bool { return sameIssue(e, i) }) {
			continue
		}
		colour := red
		if i.Severity == messages.SeverityWarning {
			colour = yellow
		}
		_, _ = fmt.Fprintf(p.w, "%s %s\n", p.paint(colour, string(i.Severity)+":"), oneLine(i.String()))
	}
}

// sameIssue tells whether two lines would say the same of the same place: a broken
// entry is an issue of its file, and again of its server.
func sameIssue(a, b messages.Issue) bool {
	if a.String() == b.String() {
		return true
	}
	return a.Line > 0 && a.File == b.File && a.Line == b.Line && a.Column == b.Column && a.Severity == b.Severity &&
		(strings.HasSuffix(a.Message, b.Message) || strings.HasSuffix(b.Message, a.Message))
}

// tools shows the catalogue.
func (p printer) tools(list []messages.Tool, schema bool) {
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
	rows := [][]string{{"ID", "TOOL", "STATE", "LANE", "POSITION", "AGE", "CLIENT", "BLOCKED BY"}}
	for _, c := range list {
		rows = append(rows, []string{oneLine(c.CallID), oneLine(c.Tool), string(c.State), lane(c), number(c.Position),
			short(time.Duration(c.AgeMS * float64(time.Millisecond))), oneLine(orDash(c.Client)), oneLine(orDash(strings.Join(c.BlockedBy, ", ")))})
	}
	p.table(rows)
}

// lane names the lane with what splits it and what it is shared by.
func lane(c messages.CallInfo) string {
	s := orDash(c.Lane)
	if c.LaneKey != "" {
		s += " key=" + cut(oneLine(c.LaneKey), laneKeyWidth)
	}
	if c.LaneGroup != "" {
		s += " group=" + oneLine(c.LaneGroup)
	}
	return s
}

const laneKeyWidth = 40

// journal shows past side effects.
func (p printer) journal(list []messages.JournalEntry) {
	rows := [][]string{{"ID", "TOOL", "OUTCOME", "CODE", "DISPATCHED", "SETTLED AFTER", "GENERATION", "CLIENT", "KEY"}}
	for _, e := range list {
		took := "-"
		if e.SettledAt != nil {
			took = short(e.SettledAt.Sub(e.DispatchedAt))
		}
		rows = append(rows, []string{oneLine(e.CallID), oneLine(e.Server + "/" + e.Tool), oneLine(e.Outcome), oneLine(orDash(string(e.Code))),
			e.DispatchedAt.Local().Format("2006-01-02 15:04:05"), took, fmt.Sprint(e.Generation), oneLine(orDash(e.Client)), oneLine(orDash(e.IdempotencyKey))})
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
		p.line("no server can run: correct the above, then `bridgectl reload`")
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
			would = cut("not start: "+s.Err.Message, lastWidth) // the whole of it is among the issues
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

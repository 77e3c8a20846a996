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
)

// printer is the only one that knows how things look: its streams and forms are here,
// the pictures for people in output_views.go. Every foreign string goes through
// sanitise, oneLine or escapeJSON there.
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

// cut shortens a clean line.
func cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

func orElse(s, d string) string {
	if s == "" {
		return d
	}
	return s
}

// humanSize is a size for people.
func humanSize(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

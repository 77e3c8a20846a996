package config

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"mcpbridge/messages"
)

// stdioFields and remoteFields belong to one transport only.
var (
	stdioFields  = []string{"command", "args", "env", "inherit_env", "cwd"}
	remoteFields = []string{"url", "headers"}
	// identityFields say what a server is; defaults may not hold them.
	identityFields = []string{"type", "command", "args", "url"}
	// operationalFields are those of an operator's defaults that also hold for the
	// servers of an untrusted project: they decide how a server is run, hand it
	// nothing and loosen nothing.
	operationalFields = []string{"connect", "sessions", "restart", "timeouts", "limits", "isolation", "keep_listed", "pins", "health"}
)

// overlay puts an entry on top of the defaults: what it says wins, and where both
// hold keys of their own they are joined key by key, one level deep.
func overlay(defaults, own []field) []field {
	out := slices.Clone(own)
	for _, def := range defaults {
		i := slices.IndexFunc(out, func(f field) bool { return f.key == def.key })
		switch {
		case i < 0 && excludes(def.key, own):
		case i < 0:
			out = append(out, def)
		case def.merged != nil && out[i].node.Kind == yaml.MappingNode:
			own := decoder{}
			inner, _ := own.fields(out[i].value)
			if len(own.issues) > 0 {
				continue // decoded alone, so that its faults are reported
			}
			out[i].merged = overlay(def.merged, inner)
		case isNull(out[i].node):
			out[i] = def
		}
	}
	return out
}

// excludes reports whether an entry settles a default's question under its other name.
func excludes(key string, own []field) bool {
	other := map[string]string{"trust": "read_only", "read_only": "trust"}[key]
	return other != "" && slices.ContainsFunc(own, func(f field) bool { return f.key == other })
}

// decodeServer reads one entry, with the defaults merged in. said is what was found in it
// before.
func decodeServer(name string, v value, layer Layer, said []found) *entry {
	d := &decoder{server: name, at: map[string]value{}, issues: slices.Clone(said)}
	s := DefaultServer()
	s.Name, s.Layer, s.Source = name, layer, v.where()
	e := &entry{v: v, doc: v.doc}
	if msg := badName(name); msg != "" {
		d.errorf(v, "%s", msg)
	}
	if lookalike(name) {
		d.warnf(v, "the name mixes letters of several alphabets that look alike; it is not the name that it seems to be")
	}
	if v.merged == nil && isNull(v.node) {
		v.merged = []field{}
	}
	w := &Written{}
	d.serverObject(v, &s, w)
	s.Written = w
	s.Command, s.Args, s.Env, s.Cwd, s.URL, s.Headers = w.Command, w.Args, w.Env, w.Cwd, w.URL, w.Headers
	e.Server, e.at, e.issues = s, d.at, d.issues
	e.structure()
	return e
}

// badName says why a server cannot have this name. Names are the identity of a
// server and appear in URLs and tool names; what they hold is otherwise free.
func badName(name string) string {
	switch {
	case name == "":
		return "a server needs a name"
	case len(name) > 256:
		return "the name is longer than 256 bytes"
	case strings.TrimSpace(name) != name:
		return "the name begins or ends with a space"
	case strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name):
		return "the name holds a control character"
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' }):
		return "the name holds a character that cannot be seen"
	case slices.ContainsFunc(strings.FieldsFunc(name, func(r rune) bool { return r == '/' || r == '\\' }), func(p string) bool { return p == "." || p == ".." }):
		return "the name would not survive in a URL or a path: no . or .. between its slashes"
	case strings.HasPrefix(name, "/") || strings.HasSuffix(name, "/") || strings.Contains(name, "//") || name == "." || name == "..":
		return "the name would not survive in a URL: no / at its ends, no //, and not . or .."
	}
	return ""
}

// lookalike reports a name with Latin letters beside those of an alphabet that has
// letters of the same look.
func lookalike(name string) bool {
	latin := strings.ContainsFunc(name, func(r rune) bool { return unicode.Is(unicode.Latin, r) })
	other := strings.ContainsFunc(name, func(r rune) bool {
		return unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee)
	})
	return latin && other
}

// serverReaders is the table of an entry's keys.
func (d *decoder) serverReaders(s *Server, w *Written, oldReadOnly **bool) map[string]func(value) {
	return map[string]func(value){
		"type":        wordInto(d, &s.Type, Stdio, HTTP, SSE),
		"command":     d.commandInto(&w.Command),
		"args":        d.textsInto(&w.Args),
		"env":         d.mapInto(&w.Env, nil),
		"inherit_env": func(v value) { d.inheritEnv(v, s) },
		"cwd":         d.textInto(&w.Cwd),
		"url":         d.textInto(&w.URL),
		"headers":     d.mapInto(&w.Headers, nil),
		"enabled":     d.boolInto(&s.Enabled),
		"required":    d.boolInto(&s.Required),
		"trust":       wordInto(d, &s.Trust, TrustNone, TrustAnnotations, TrustReadOnly),
		"read_only": func(v value) {
			var b bool
			n := len(d.issues)
			if d.boolInto(&b)(v); len(d.issues) == n {
				*oldReadOnly = &b
			}
		},
		"effects": func(v value) { s.Effects = d.effects(v) },
		"tools": func(v value) {
			d.strictObject(v, map[string]func(value){"allow": d.globsInto(&s.Allow), "deny": d.globsInto(&s.Deny)})
		},
		"connect":     wordInto(d, &s.Connect, ConnectStartup, ConnectLazy, ConnectDisabled),
		"sessions":    d.choice("per_client", "shared", &s.PerClient),
		"restart":     func(v value) { d.restart(v, &s.Restart) },
		"timeouts":    func(v value) { d.timeouts(v, &s.Timeouts) },
		"limits":      func(v value) { d.limits(v, &s.Limits) },
		"isolation":   d.choice("serial", "exclusive", &s.Serial),
		"lane_key":    d.mapInto(&s.LaneKey, d.laneKey),
		"lane_group":  d.textInto(&s.LaneGroup),
		"abandon":     d.mapInto(&s.Abandon, d.abandon),
		"keep_listed": d.boolInto(&s.KeepListed),
		"pins": func(v value) {
			d.object(v, map[string]func(value){"on_change": wordInto(d, &s.PinChange, "block", "warn", "allow")})
		},
		"health": func(v value) {
			d.object(v, map[string]func(value){"probe_every": d.durationInto(&s.Health.ProbeEvery), "failures": d.intInto(&s.Health.Failures)})
		},
	}
}

// serverKeySet has the keys that an entry may have.
var serverKeySet = sync.OnceValue(func() map[string]bool {
	out := map[string]bool{}
	for k := range new(decoder).serverReaders(new(Server), new(Written), new(*bool)) {
		out[k] = true
	}
	return out
})

// serverObject reads the keys of an entry.
func (d *decoder) serverObject(v value, s *Server, w *Written) {
	var oldReadOnly *bool
	d.object(v, d.serverReaders(s, w, &oldReadOnly))
	d.readOnly(oldReadOnly, s)
	d.inactive(s)
	if at, ok := d.at["tools.allow"]; ok && len(s.Allow) == 0 && at.node.Kind == yaml.SequenceNode {
		d.errorf(at, `the list is empty, so no tool would be left; write ["*"] for all of them, or enabled: false`)
	}
	if slices.Contains(s.Allow, "*") {
		s.Allow = nil
	}
}

// readOnly applies the old spelling of trust: read_only.
func (d *decoder) readOnly(old *bool, s *Server) {
	if old == nil {
		return
	}
	at := d.at["read_only"]
	if _, both := d.at["trust"]; both && !d.at["trust"].inherited {
		d.errorf(at, "read_only is the old spelling of trust; remove it and keep trust")
		return
	}
	d.at["trust"] = at
	s.Trust = TrustNone
	if *old {
		s.Trust = TrustReadOnly
		d.warnf(at, "read_only: true loosens the classification: every tool of this server that is not under effects counts as read_only; "+
			"it is the old spelling of trust: read_only")
	}
}

func (d *decoder) commandInto(p *string) func(value) {
	return func(v value) {
		if v.node.Kind == yaml.SequenceNode {
			d.errorf(v, "expected one word; the rest of the command line belongs under args: [ … ]")
			return
		}
		d.textInto(p)(v)
		if strings.ContainsAny(strings.TrimSpace(*p), " \t") && !strings.ContainsAny(*p, `/\$`) {
			d.warnf(v, "holds a space, and no shell splits it; arguments belong under args: [ … ]")
		}
	}
}

func (d *decoder) inheritEnv(v value, s *Server) {
	if v.node.Kind == yaml.ScalarNode {
		_, s.InheritAll = d.word(v, "all")
		return
	}
	d.textsInto(&s.InheritEnv)(v)
	for i, n := range s.InheritEnv {
		if n == "all" {
			s.InheritAll = true
		} else if n == "" || strings.ContainsAny(n, "=*\x00") {
			at, ok := d.at[join(v.rel, "["+strconv.Itoa(i)+"]")]
			if !ok {
				at = v
			}
			d.errorf(at, "expected the name of a variable, without = or *; inherit_env: all passes everything on")
		}
	}
	s.InheritEnv = slices.DeleteFunc(s.InheritEnv, func(n string) bool { return n == "all" })
}

// choice reads a pair of words into a flag that the first of them sets.
func (d *decoder) choice(set, unset string, p *bool) func(value) {
	return func(v value) {
		if w, ok := d.word(v, unset, set); ok {
			*p = w == set
		}
	}
}

func (d *decoder) effects(v value) map[string]messages.Effect {
	fs, ok := d.fields(v)
	if !ok {
		return nil
	}
	m := make(map[string]messages.Effect, len(fs))
	for _, f := range fs {
		d.at[f.rel] = f.value
		if msg := badGlob(f.key); msg != "" {
			d.reportAt(f.value, f.line, f.col, messages.SeverityError, msg)
		}
		if e, ok := d.effect(f.value); ok {
			m[f.key] = e
		}
	}
	return m
}

func (d *decoder) effect(v value) (e messages.Effect, ok bool) {
	w, ok := d.word(v, "read_only", "idempotent", "side_effect")
	if ok {
		_ = e.UnmarshalText([]byte(w)) // the words are the type's own
	}
	return e, ok
}

func (d *decoder) laneKey(v value, s string) {
	if rest, ok := strings.CutPrefix(s, "args."); !ok || rest == "" {
		d.errorf(v, "expected the argument that splits the lane, such as args.path")
	}
}

func (d *decoder) abandon(v value, s string) {
	if s != "never" {
		d.errorf(v, "expected never; the time for all tools of a server is timeouts.abandon_after")
	}
}

func (d *decoder) restart(v value, r *Restart) {
	d.object(v, map[string]func(value){
		"mode": wordInto(d, &r.Mode, RestartAlways, RestartOnFailure, RestartNever),
		"backoff": func(v value) {
			d.object(v, map[string]func(value){"initial": d.durationInto(&r.Initial), "multiplier": d.floatInto(&r.Multiplier),
				"max": d.durationInto(&r.Max), "jitter": d.floatInto(&r.Jitter)})
		},
		"reset_after": d.durationInto(&r.ResetAfter),
		"burst":       d.intInto(&r.Burst),
		"within":      d.durationInto(&r.Within),
		"quarantine": func(v value) {
			d.object(v, map[string]func(value){"cooldown": d.durationInto(&r.Cooldown), "max_cooldown": d.durationInto(&r.MaxCooldown)})
		},
	})
	// One bound moves the other where only one was written.
	if _, ok := d.at[v.rel+".backoff.max"]; !ok {
		r.Max = max(r.Max, r.Initial)
	} else if _, ok := d.at[v.rel+".backoff.initial"]; !ok && r.Max > 0 {
		r.Initial = min(r.Initial, r.Max)
	}
	if _, ok := d.at[v.rel+".quarantine.max_cooldown"]; !ok {
		r.MaxCooldown = max(r.MaxCooldown, r.Cooldown)
	} else if _, ok := d.at[v.rel+".quarantine.cooldown"]; !ok && r.MaxCooldown > 0 {
		r.Cooldown = min(r.Cooldown, r.MaxCooldown)
	}
}

func (d *decoder) timeouts(v value, t *Timeouts) {
	call := t.Call
	d.object(v, map[string]func(value){
		"start":       d.durationInto(&t.Start),
		"first_start": d.durationInto(&t.FirstStart),
		"call":        d.durationInto(&t.Call),
		"abandon_after": func(v value) {
			if v.node.Kind == yaml.ScalarNode && v.node.Value == "never" {
				t.AbandonAfter = 0
				return
			}
			n := len(d.issues)
			d.durationInto(&t.AbandonAfter)(v)
			if len(d.issues) == n && t.AbandonAfter == 0 {
				d.errorf(v, "0 says nothing here: write never, or a time above 0")
			}
		},
		"stdin_close": d.durationInto(&t.StdinClose),
		"sigterm":     d.durationInto(&t.SigTerm),
		"drain":       d.durationInto(&t.Drain),
	})
	if t.Call == 0 {
		t.Call = call // requirement D3: 0 means the default
	}
	if _, ok := d.at[v.rel+".first_start"]; !ok {
		t.FirstStart = max(t.FirstStart, t.Start)
	}
}

func (d *decoder) limits(v value, l *Limits) {
	d.object(v, map[string]func(value){
		"max_reads": d.intInto(&l.MaxReads), "max_side_effects": d.intInto(&l.MaxSideEffects), "queue": d.intInto(&l.Queue),
		"queue_bytes": d.sizeInto(&l.QueueBytes), "result_bytes": d.sizeInto(&l.ResultBytes), "frame_bytes": d.sizeInto(&l.FrameBytes),
		"tools": d.intInto(&l.Tools), "pages": d.intInto(&l.Pages),
		"nofile": d.intInto(&l.NoFile), "memory": d.sizeInto(&l.Memory), "pids": d.intInto(&l.PIDs),
	})
	if _, ok := d.at[v.rel+".frame_bytes"]; !ok {
		l.FrameBytes = max(l.FrameBytes, l.ResultBytes)
	}
}

// shownType is the transport as JSON and messages name it.
func shownType(t Transport) string {
	if t == Auto {
		return string(HTTP)
	}
	return string(t)
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

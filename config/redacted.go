package config

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
)

// Values of configuration reach logs, errors and crash reports by accident, whole structs
// at a time. The types that may hold a secret therefore print without: through fmt with every
// verb, through slog and as JSON.

// String names the server, and how it is reached.
func (s Server) String() string {
	return fmt.Sprintf("server %q (%s)", s.Name, shownType(s.Type))
}

// Format prints the same for every verb, %+v and %#v too.
func (s Server) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue is the server in a log line.
func (s Server) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", s.Name), slog.String("type", string(s.Type)), slog.String("source", s.Source))
}

// plainServer is a Server without its methods.
type plainServer Server

// MarshalJSON masks every value that may be a secret.
func (s Server) MarshalJSON() ([]byte, error) {
	p := plainServer(s)
	p.Secrets, p.Written, p.Approval = nil, nil, nil
	p.Env, p.Headers = masked(s.Env), masked(s.Headers)
	p.URL = maskURL(s.URL)
	p.Args = make([]string, len(s.Args))
	redact := NewRedactor(s.Secrets)
	for i := range s.Args {
		p.Args[i] = redact.String(maskArg(s.Args, i))
	}
	p.Command, p.Cwd = redact.String(s.Command), redact.String(s.Cwd)
	return json.Marshal(p)
}

func masked(m map[string]string) map[string]string {
	out := maps.Clone(m)
	for k := range out {
		out[k] = mask
	}
	return out
}

// String says that there is something and not what.
func (w Written) String() string { return "configuration as it was written, not shown" }

// Format prints the same for every verb.
func (w Written) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, w.String()) }

// LogValue is String.
func (w Written) LogValue() slog.Value { return slog.StringValue(w.String()) }

// MarshalJSON is String.
func (w Written) MarshalJSON() ([]byte, error) { return json.Marshal(w.String()) }

package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestConfigurationPrintsWithoutSecrets: by whatever way a configuration reaches a log or
// an error, no secret goes with it.
func TestConfigurationPrintsWithoutSecrets(t *testing.T) {
	w := newWorld(t)
	w.env["T"] = "canary-from-env"
	w.user(`mcp_servers:
  a: {command: "x ${T}", args: ["--token", canary-arg, "${T}", plain], env: {A: canary-env, B: "${T}"}, cwd: "/x/${T}"}
  b: {url: "http://canary-user:canary-pass@h/?q=canary-query", headers: {X: canary-head}}
  c: {url: "ftp://canary-user:canary-pass@h"}
`)
	c := w.load()
	var log bytes.Buffer
	l := slog.New(slog.NewJSONHandler(&log, nil))
	text := slog.New(slog.NewTextHandler(&log, nil))
	for i := range c.Servers {
		s := c.Servers[i]
		l.Info("x", "server", s, "pointer", &s, "written", s.Written, "list", []Server{s})
		text.Info("x", "server", s, "pointer", &s, "written", s.Written, "list", []Server{s})
		fmt.Fprintf(&log, "%v %+v %#v %s %q %d %v %+v\n", s, s, s, s, s, s, &s, s.Written)
	}
	text.Info("x", "config", c)
	fmt.Fprintf(&log, "%v %+v %#v\n", *c, *c, c.Servers)
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	log.Write(b)
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "canary") {
			t.Errorf("shown: %s", line)
		}
	}
	if !strings.Contains(log.String(), `server "a" (stdio)`) || !strings.Contains(string(b), "plain") {
		t.Errorf("nothing is left: %s", log.String())
	}
}

package harness

import (
	"context"
	"testing"
	"time"

	"mcpbridge/config"
	"mcpbridge/supervisor"
)

// Library opens a bridge inside the test's own process from the same kind of
// configuration that a daemon reads. It is closed in t.Cleanup, and then no process
// of it may be left.
func Library(t testing.TB, cfg any, opts ...supervisor.Option) *supervisor.Bridge {
	t.Helper()
	w := NewWorld(t)
	c := LoadConfig(t, w, cfg)
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	b, err := supervisor.Open(ctx, c, append([]supervisor.Option{supervisor.WithStateDir(w.State), supervisor.WithStartupWait(Patience)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		var left []Proc
		poll(5*time.Second, func() bool { left = Marked(b.RunID()); return len(left) == 0 })
		for _, p := range left {
			t.Errorf("left behind: %s", p)
			p.Kill()
		}
	})
	return b
}

// LoadConfig writes a configuration into the world and loads it; any error in it
// fails the test.
func LoadConfig(t testing.TB, w *World, cfg any) *config.Config {
	t.Helper()
	c, err := config.Load(config.LoadOptions{File: w.WriteConfig(t, "library.yaml", cfg), Workspace: w.Work})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range c.Issues {
		if i.Severity == "error" {
			t.Fatalf("configuration: %s", i)
		}
	}
	return c
}

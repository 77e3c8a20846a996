package control

import (
	"errors"
	"slices"
	"testing"

	"mcpbridge/config"
)

// TestConfigDiff: what the files say now is compared with what runs; files that cannot be
// read are the caller's answer, and a bridge without files says that it has none.
func TestConfigDiff(t *testing.T) {
	f := newFake()
	_, err := serve(t, f).ConfigDiff(t.Context())
	apiError(t, err, CodeRefused)

	next := f.cfg
	next.Servers = append(slices.Clone(f.cfg.Servers), config.Server{Name: "fresh", Type: config.Stdio, Command: "x"})
	var broken error
	c := serve(t, f, func(o *Options) {
		o.Load = func() (*config.Config, error) { return &next, broken }
	})
	d, err := c.ConfigDiff(t.Context())
	if err != nil || !slices.Equal(d.Added, []string{"fresh"}) || len(d.Removed)+len(d.Changed)+len(d.Settings) != 0 || d.Empty() {
		t.Errorf("%+v %v", d, err)
	}
	broken = errors.New("c.yaml:1:2: no")
	_, err = c.ConfigDiff(t.Context())
	apiError(t, err, CodeBadConfig)
}

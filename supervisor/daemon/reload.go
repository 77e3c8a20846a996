package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"

	"mcpbridge/config"
	"mcpbridge/supervisor"
	"mcpbridge/supervisor/control"
)

// askReload wishes for a reload. One that is wished for already serves both: it reads the
// files when it begins.
func (d *daemon) askReload(why string) {
	select {
	case d.reloads <- why:
	default:
	}
}

// startReloads carries out what is asked for by signals and files, until stop is called;
// it returns when the last one is over. What becomes of them stands in log, status and
// events.
func (d *daemon) startReloads(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case why := <-d.reloads:
				_, _ = d.reload(ctx, why) // told by the bridge
			case <-ctx.Done():
				return
			}
		}
	})
	if d.watch != nil {
		work.Go(func() { d.watch.run(ctx, d.log, func() { d.askReload("a configuration file has changed") }) })
	}
	return func() { cancel(); work.Wait() }
}

// reload applies the configuration as it is now. What only a start can refuse (an endpoint
// that would be open to strangers) is refused here, too, although it would count from the
// next start on: that one would fail.
func (d *daemon) reload(ctx context.Context, why string) (config.Changes, error) {
	d.log.Info("reloading the configuration", "reason", why)
	c, err := d.bridge.ReloadFrom(ctx, func() (*config.Config, error) {
		// What is no file was read once: again, it would be empty, or block.
		if fi, err := os.Stat(d.o.ConfigFile); d.o.ConfigFile != "" && err == nil && !fi.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is no regular file and cannot be read again: start the bridge with a file to reload it", d.o.ConfigFile)
		}
		d.places.note()
		var p Plan
		if err := p.load(d.o); err != nil {
			return nil, err
		}
		return p.Config, p.endpoint(d.o)
	})
	var refused *supervisor.ReloadError
	if errors.As(err, &refused) {
		return c, &control.Error{Code: control.CodeBadConfig, Status: http.StatusConflict, Message: refused.Error(), Issues: refused.Issues,
			Hint: "the bridge goes on with the configuration before it; `" + checkVerb(d.o.ConfigFile) + "` shows every problem"}
	}
	return c, err
}

// checkVerb is how the files of this bridge are checked.
func checkVerb(file string) string {
	if file == "" {
		return "bridgectl config check"
	}
	return "bridgectl config check -c " + strconv.Quote(file)
}

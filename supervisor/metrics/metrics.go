// Package metrics shows the bridge to Prometheus. A Collector hangs on the bridge's
// event hook and reads its Status at each scrape; it has a registry of its own and
// touches nothing global.
//
//	m := metrics.New(metrics.Options{Version: "1.2.0"})
//	b, err := supervisor.Open(ctx, cfg, supervisor.WithEventHook(m.Observe))
//	m.Bind(b.Status)
//	http.Handle("/metrics", m.Handler())
//
// Labels are the names of configured servers, effects, outcomes and states, so that
// no caller and no server can make the number of series grow.
package metrics

import (
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"mcpbridge/messages"
)

// Options of New.
type Options struct {
	Version string // of the bridge, for mcpbridge_build_info
}

// pending is what is remembered of a call between its acceptance and its outcome.
type pending struct {
	server, effect string
	joined         bool // it gets the outcome of another call and has no run time of its own
}

// Collector turns events into metrics. Observe may be called from any goroutine.
type Collector struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	queue    *prometheus.HistogramVec
	ready    *prometheus.HistogramVec
	dropped  prometheus.Counter
	late     *prometheus.CounterVec
	joined   *prometheus.CounterVec
	overlap  *prometheus.CounterVec

	mu     sync.Mutex
	open   map[string]pending   // by call id
	down   map[string]time.Time // by server: since when it is not ready
	status func() messages.Status
}

// latency reaches from a warm local tool to the longest sensible call.
var latency = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// New returns a Collector that knows nothing yet.
func New(o Options) *Collector {
	c := &Collector{registry: prometheus.NewRegistry(), open: map[string]pending{}, down: map[string]time.Time{}}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: latency}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	c.calls = counter("mcpbridge_calls_total", "Calls that have their outcome.", "server", "effect", "outcome")
	c.duration = histogram("mcpbridge_call_duration_seconds", "Run time of calls that were sent, without the wait in the queue.", "server", "effect")
	c.queue = histogram("mcpbridge_call_queue_seconds", "Wait of calls in the queue.", "server", "effect")
	c.ready = histogram("mcpbridge_server_ready_seconds", "Time from a server's end to its being ready again.", "server")
	c.dropped = prometheus.NewCounter(prometheus.CounterOpts{Name: "mcpbridge_events_dropped_total", Help: "Events that this collector was too slow for; its counters lack them."})
	c.late = counter("mcpbridge_replies_late_total", "Answers that came after the call had its outcome.", "server")
	c.overlap = counter("mcpbridge_possible_overlaps_total", "Lanes of HTTP servers that were released without proof that the call had ended.", "server")
	c.joined = counter("mcpbridge_calls_joined_total", "Calls that were not sent, because a call with the same idempotency key has, or will have, their outcome.", "server")
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "mcpbridge_build_info", Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": o.Version, "goversion": runtime.Version()}})
	build.Set(1)
	c.registry.MustRegister(c.calls, c.duration, c.queue, c.ready, c.dropped, c.late, c.joined, c.overlap, build, (*scrape)(c),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return c
}

// Bind gives the collector the state that it reads at each scrape.
func (c *Collector) Bind(status func() messages.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// Handler serves the metrics in Prometheus' text formats.
func (c *Collector) Handler() http.Handler {
	return promhttp.HandlerFor(c.registry, promhttp.HandlerOpts{Registry: c.registry, MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Registry is for a host program that gathers by itself.
func (c *Collector) Registry() prometheus.Gatherer { return c.registry }

// Observe takes one event; it is the bridge's event hook.
func (c *Collector) Observe(e messages.Event) {
	switch e.Type {
	case messages.EventCallAccepted:
		c.mu.Lock()
		c.open[e.CallID] = pending{server: e.Server, effect: e.Effect}
		c.mu.Unlock()
	case messages.EventCallJoined:
		c.joined.WithLabelValues(e.Server).Inc()
		c.mu.Lock()
		if p, ok := c.open[e.CallID]; ok {
			p.joined = true
			c.open[e.CallID] = p
		}
		c.mu.Unlock()
	case messages.EventCallDispatched:
		c.mu.Lock()
		if p, ok := c.open[e.CallID]; ok && p.joined { // the call that it had joined was not sent
			p.joined = false
			c.open[e.CallID] = p
		}
		c.mu.Unlock()
	case messages.EventCallSettled:
		c.settled(e)
	case messages.EventServerExited:
		c.mu.Lock()
		if _, ok := c.down[e.Server]; !ok {
			c.down[e.Server] = e.Time
		}
		c.mu.Unlock()
	case messages.EventServerReady:
		c.mu.Lock()
		since, ok := c.down[e.Server]
		delete(c.down, e.Server)
		c.mu.Unlock()
		if ok {
			c.ready.WithLabelValues(e.Server).Observe(e.Time.Sub(since).Seconds())
		}
	case messages.EventServerState:
		c.rest(e)
	case messages.EventReplyLate:
		c.late.WithLabelValues(e.Server).Inc()
	case messages.EventPossibleOverlap:
		c.overlap.WithLabelValues(e.Server).Inc()
	case messages.EventGap:
		c.dropped.Add(float64(e.Count))
		c.forget()
	}
}

// rest ends the measurement of a server that was stopped on purpose: the time until
// a person starts it again says nothing about recovery.
func (c *Collector) rest(e messages.Event) {
	switch e.State {
	case messages.StateStopped.String(), messages.StateIdle.String(), messages.StateDisabled.String():
		c.mu.Lock()
		delete(c.down, e.Server)
		c.mu.Unlock()
	}
}

// forget drops what was remembered across events: after a gap their ends may never come.
func (c *Collector) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.open)
	clear(c.down)
}

func (c *Collector) settled(e messages.Event) {
	c.mu.Lock()
	p, accepted := c.open[e.CallID]
	delete(c.open, e.CallID)
	c.mu.Unlock()
	if e.Code == messages.CodeUnknownTool {
		p = pending{} // whatever the caller wrote must not become a label
	} else {
		if e.Server != "" {
			p.server = e.Server
		}
		if e.Effect != "" {
			p.effect = e.Effect
		}
	}
	c.calls.WithLabelValues(p.server, p.effect, e.Outcome).Inc()
	if !accepted || p.joined {
		return
	}
	c.queue.WithLabelValues(p.server, p.effect).Observe(e.QueuedMS / 1000)
	if e.Attempt > 0 {
		c.duration.WithLabelValues(p.server, p.effect).Observe(e.RanMS / 1000)
	}
}

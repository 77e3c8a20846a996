package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mcpbridge/messages"
)

// scrape is the part of the Collector that is read from the bridge's Status at each
// scrape: what it shows cannot drift away from the truth.
type scrape Collector

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	stateDesc    = desc("mcpbridge_server_state", "1 for the state that the server is in, 0 for the others.", "server", "state")
	restartsDesc = desc("mcpbridge_server_restarts_total", "Starts of the server after its first.", "server")
	backoffDesc  = desc("mcpbridge_server_backoff_seconds", "Time until the next start, 0 when none is planned.", "server")
	degradedDesc = desc("mcpbridge_server_degraded", "1 for a ready server with a restriction that an issue explains.", "server")
	noiseDesc    = desc("mcpbridge_server_noise_lines", "Lines on the server's stdout that were no protocol, since its start.", "server")
	toolsDesc    = desc("mcpbridge_tools", "Tools of the server in the catalogue.", "server")
	inflightDesc = desc("mcpbridge_calls_inflight", "Calls that the server works on.", "server")
	queuedDesc   = desc("mcpbridge_calls_queued", "Calls that wait for the server.", "server")
	uptimeDesc   = desc("mcpbridge_uptime_seconds", "Since the bridge was opened.")
	drainDesc    = desc("mcpbridge_draining", "1 while the bridge takes no new calls.")
	issuesDesc   = desc("mcpbridge_config_issues", "Problems that the configuration has.", "severity")
)

// Describe implements prometheus.Collector.
func (s *scrape) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{stateDesc, restartsDesc, backoffDesc, degradedDesc, noiseDesc, toolsDesc, inflightDesc, queuedDesc, uptimeDesc, drainDesc, issuesDesc} {
		ch <- d
	}
}

// states are all there are, in order.
func states() []messages.State {
	var out []messages.State
	for s := messages.StateIdle; s <= messages.StateBlocked; s++ {
		out = append(out, s)
	}
	return out
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Collect implements prometheus.Collector.
func (s *scrape) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	status := s.status
	s.mu.Unlock()
	if status == nil {
		return
	}
	st := status()
	send := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	for name, v := range merge(st.Servers) {
		for _, state := range states() {
			send(stateDesc, prometheus.GaugeValue, yes(v.State == state), name, state.String())
		}
		backoff := 0.0
		if v.NextRetry != nil {
			backoff = max(0, time.Until(*v.NextRetry).Seconds())
		}
		send(restartsDesc, prometheus.CounterValue, float64(v.Restarts), name)
		send(backoffDesc, prometheus.GaugeValue, backoff, name)
		send(degradedDesc, prometheus.GaugeValue, yes(v.Degraded), name)
		send(noiseDesc, prometheus.GaugeValue, float64(v.NoiseLines), name)
		send(toolsDesc, prometheus.GaugeValue, float64(v.Tools), name)
		send(inflightDesc, prometheus.GaugeValue, float64(v.InFlight), name)
		send(queuedDesc, prometheus.GaugeValue, float64(v.Queued), name)
	}
	counts := map[messages.Severity]float64{messages.SeverityError: 0, messages.SeverityWarning: 0}
	for _, i := range st.Issues {
		counts[i.Severity]++
	}
	for sev, n := range counts {
		send(issuesDesc, prometheus.GaugeValue, n, string(sev))
	}
	send(uptimeDesc, prometheus.GaugeValue, float64(st.Bridge.UptimeMS)/1000)
	send(drainDesc, prometheus.GaugeValue, yes(st.Bridge.Draining))
}

// merge adds up the instances of a server, so that no client's name becomes a label;
// the state is that of the first row.
func merge(rows []messages.ServerStatus) map[string]messages.ServerStatus {
	out := map[string]messages.ServerStatus{}
	for _, v := range rows {
		if have, ok := out[v.Name]; ok {
			have.Restarts += v.Restarts
			have.InFlight += v.InFlight
			have.Queued += v.Queued
			have.NoiseLines += v.NoiseLines
			have.Degraded = have.Degraded || v.Degraded
			v = have
		}
		out[v.Name] = v
	}
	return out
}

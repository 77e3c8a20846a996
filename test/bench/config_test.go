package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"mcpbridge/test/harness"
)

// TestBenchConfigCheck times `bridgectl config check`, process start and all, on files with
// 200 servers.
func TestBenchConfigCheck(t *testing.T) {
	w := harness.NewWorld(t)
	w.Run(t, "version") // the program is built before anything is timed
	var ours, theirs strings.Builder
	ours.WriteString("mcp_servers:\n")
	theirs.WriteString("{\n  // as an editor has it\n  \"servers\": {\n")
	for i := range 200 {
		fmt.Fprintf(&ours, "  server-%03d:\n    command: npx\n    args: [\"-y\", \"@vendor/server-%03d\", \"--port\", \"%d\"]\n    env: {TOKEN: \"${TOKEN:-}\", MODE: fast}\n"+
			"    timeouts: {call: 45s}\n    tools: {allow: [\"get_*\"]}\n", i, i, 4000+i)
		fmt.Fprintf(&theirs, "    \"server-%03d\": {\"type\": \"stdio\", \"command\": \"npx\", \"args\": [\"-y\", \"@vendor/server-%03d\"], \"env\": {\"TOKEN\": \"${env:TOKEN}\"}, \"timeout\": 45},\n", i, i)
	}
	theirs.WriteString("  },\n}\n")
	report("\n%-34s %12s %12s %12s  goal", "config check, 200 servers", "p50", "p99", "max")
	for _, f := range []struct{ title, name, text string }{
		{"our own YAML", "two-hundred.yaml", ours.String()}, {"another tool's JSON", "mcp.json", theirs.String()},
	} {
		file := w.WriteConfig(t, f.name, f.text)
		var took []time.Duration
		for range pick(30, 2) {
			at := time.Now()
			r := w.Run(t, "config", "check", file)
			took = append(took, time.Since(at))
			if r.Exit != 0 || strings.Count(r.Stdout, "server-") < 200 {
				t.Fatal(r)
			}
		}
		report("%-34s %9.1f ms %9.1f ms %9.1f ms  below 300 ms", f.title, us(quantile(took, 0.5))/1000, us(quantile(took, 0.99))/1000, us(quantile(took, 1))/1000)
	}
}

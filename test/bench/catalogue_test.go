package bench

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpbridge/test/harness"
)

// many writes a list of n tools with descriptions and schemas of the usual size.
func many(t *testing.T, path string, n int, twist string) {
	t.Helper()
	verbs, things := []string{"create", "delete", "list", "read", "update", "search"}, []string{"issue", "repository", "invoice", "event", "file", "user", "branch", "comment"}
	var list []string
	for i := range n {
		verb, thing := verbs[i%len(verbs)], things[i/len(verbs)%len(things)]
		list = append(list, fmt.Sprintf(`{"name":"%s_%s_%05d","description":"%s one %s of the account number %d. %s%s","inputSchema":{"type":"object","properties":{"id":{"type":"string","description":"which %s"},"limit":{"type":"integer","minimum":1}},"required":["id"]}}`,
			verb, thing, i, verb, thing, i, strings.Repeat("It needs the right to do so. ", 5), twist, thing))
		twist = "" // the first one alone
	}
	if err := os.WriteFile(path+".new", []byte("["+strings.Join(list, ",")+"]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestBenchCatalogue measures a catalogue of 10,000 tools.
func TestBenchCatalogue(t *testing.T) {
	n := pick(10000, 1500)
	file := filepath.Join(t.TempDir(), "list.json")
	many(t, file, n, "")
	b := harness.Library(t, harness.Config(harness.M{"s": harness.M{"command": harness.Fixture(t), "args": []any{"-list", file},
		"pins": harness.M{"on_change": "allow"}}}))
	before := b.Catalogue()
	if got := len(before.Tools()); got != n {
		t.Fatalf("%d tools", got)
	}
	endpoint := httptest.NewServer(b.Handler())
	defer endpoint.Close()
	meta := harness.OpenRaw(t, endpoint.URL+"/mcp", nil)
	rounds := pick(50, 2)
	measure := func(title string, f func(round int)) {
		f(-1) // warms up
		var each []time.Duration
		for i := range rounds {
			at := time.Now()
			f(i)
			each = append(each, time.Since(at))
		}
		report("%-34s %9.1f ms %9.1f ms %9.1f ms  %s", title, us(quantile(each, 0.5))/1000, us(quantile(each, 0.99))/1000, us(each[len(each)-1])/1000, "p50 under 50 ms")
	}
	report("\n%-34s %12s %12s %12s  goal", fmt.Sprintf("a catalogue of %d tools", n), "p50", "p99", "max")
	measure("listed whole, over HTTP", func(int) {
		listed, cursor := 0, ""
		for {
			body := listPage(t, endpoint.URL+"/servers/s/mcp", cursor)
			listed += bytes.Count(body, []byte(`"inputSchema":`))
			_, rest, more := bytes.Cut(body[:min(len(body), 1000)], []byte(`"nextCursor":"`))
			if !more {
				break
			}
			next, _, _ := bytes.Cut(rest, []byte(`"`))
			cursor = string(next)
		}
		if listed != n {
			t.Fatalf("%d tools were listed", listed)
		}
	})
	at := time.Now()
	search := func(i int) {
		res := string(meta.CallTool(t, "search_tools", fmt.Sprintf(`{"query":"update the invoice of account %d","limit":10}`, max(i, 0))))
		if !strings.Contains(res, "update_invoice_") {
			t.Fatalf("found %s", res)
		}
	}
	search(-1)
	report("%-34s %9.1f ms", "the first search of all", us(time.Since(at))/1000)
	measure("searched, over HTTP", search)
	many(t, file, n, "It was changed.")
	harness.Eventually(t, "the change is in the catalogue", func() bool { return b.Catalogue().Version > before.Version })
	after := b.Catalogue()
	measure("compared with an earlier one", func(int) {
		if d := after.Since(before); len(d.Changed) != 1 || len(d.Added)+len(d.Removed) != 0 {
			t.Fatalf("%d added, %d removed, %d changed", len(d.Added), len(d.Removed), len(d.Changed))
		}
	})
	// The worst case: the search comes with the change, before the index was made ahead.
	var each []time.Duration
	for i := range pick(20, 2) {
		version := b.Catalogue().Version
		many(t, file, n, fmt.Sprintf("It was changed to zebra%d.", i))
		harness.Eventually(t, "the change is in the catalogue", func() bool { return b.Catalogue().Version > version })
		at := time.Now()
		res := string(meta.CallTool(t, "search_tools", fmt.Sprintf(`{"query":"zebra%d"}`, i)))
		each = append(each, time.Since(at))
		if !strings.Contains(res, `\"total\":1}`) || !strings.Contains(res, "create_issue_00000") {
			t.Fatalf("found %s", res)
		}
	}
	report("%-34s %9.1f ms %9.1f ms %9.1f ms  %s", "searched first after a change", us(quantile(each, 0.5))/1000, us(quantile(each, 0.99))/1000, us(slices.Max(each))/1000, "p50 under 50 ms")
}

// listPage asks for one page and does not read what is in it: what is measured is the
// bridge.
func listPage(t *testing.T, url, cursor string) []byte {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":%q,`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, cursor)))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %v %.300s", resp.StatusCode, err, body)
	}
	return body
}

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"mcpbridge/test/witness"
)

// tool is one entry of the list. Def is what tools/list says, byte for byte.
type tool struct {
	name  string
	class witness.Class
	def   json.RawMessage
	run   func(s *server, c *call) answer
}

// common are the arguments that every tool takes, as properties of its schema.
const common = `"nonce":{"type":"string"},"sleep_ms":{"type":"integer","minimum":0},"fault":{"type":"string"}`

func define(name, description, annotations, properties string) json.RawMessage {
	if properties != "" {
		properties = "," + properties
	}
	return json.RawMessage(fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{%s%s}},"annotations":%s}`,
		name, description, common, properties, annotations))
}

const (
	hintRead  = `{"readOnlyHint":true}`
	hintWrite = `{"readOnlyHint":false,"destructiveHint":false}`
	hintPut   = `{"readOnlyHint":false,"idempotentHint":true}`
)

// toolTable lists the honest tools and the -tools extras.
func toolTable(o *options) []tool {
	ro := func(name, text, props string, run func(*server, *call) answer) tool {
		return tool{name, witness.Read, define(name, text, hintRead, props), run}
	}
	rw := func(name, text, hint, props string, run func(*server, *call) answer) tool {
		return tool{name, witness.SideEffect, define(name, text, hint, props), run}
	}
	tools := []tool{
		ro("read", "Reads nothing and says so.", "", runRead),
		rw("write", "Appends to the ledger.", hintWrite, `"text":{"type":"string"}`, runWrite),
		rw("put", "Appends to the ledger; says that it is idempotent.", hintPut, `"text":{"type":"string"}`, runWrite),
		ro("echo", "Returns its arguments, byte for byte.", "", runEcho),
		ro("blocks", "One content block of each kind.", "", runBlocks),
		ro("big", "A text of that many bytes.", `"bytes":{"type":"integer"}`, runBig),
		ro("nest", "Structured content nested that deep.", `"depth":{"type":"integer"}`, runNest),
		ro("fail", "Fails politely.", `"message":{"type":"string"}`, runFail),
		ro("rpc_error", "Answers with a JSON-RPC error.", `"code":{"type":"integer"},"message":{"type":"string"},"data":{}`, runRPCError),
		rw("inc", "Counts its calls.", hintWrite, "", runInc),
		ro("env", "The environment of the process.", "", runEnv),
		ro("pid", "Who answers.", "", runPID),
		ro("slow", "Takes its time.", `"ms":{"type":"integer"}`, runSlow),
		rw("add_tool", "Adds a tool.", hintWrite, `"name":{"type":"string"}`, runAddTool),
		rw("remove_tool", "Takes a tool away.", hintWrite, `"name":{"type":"string"}`, runRemoveTool),
		rw("crash", "Ends the process.", hintWrite, `"code":{"type":"integer"}`, runCrash),
	}
	if o.define != "" {
		tools = append(tools, rw("relist", "Says that its tools have changed.", hintWrite, "", runRelist))
	}
	for i := range o.tools {
		name := fmt.Sprintf("extra_%04d", i+1)
		text := "One more tool."
		if pad := o.toolBytes - len(text); pad > 0 {
			text += strings.Repeat(" ", pad-1) + "."
		}
		tools = append(tools, ro(name, text, "", runRead))
	}
	return tools
}

// defined is what a -define file holds.
type defined struct {
	Hide  []string          `json:"hide"`  // names that are not offered
	Tools []json.RawMessage `json:"tools"` // in place of those of the same name, or beside them; each a side effect
}

// offered are the tools as the -define file would have them now; the lock is held.
func (s *server) offered() []tool {
	if s.o.define == "" {
		return s.tools
	}
	var d defined
	if b, err := os.ReadFile(s.o.define); err != nil {
		return s.tools
	} else if err := json.Unmarshal(b, &d); err != nil {
		panic(err)
	}
	byName := map[string]tool{}
	var more []tool
	for _, raw := range d.Tools {
		var head struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			panic(err)
		}
		t := tool{head.Name, witness.SideEffect, raw, runWrite}
		byName[head.Name] = t
		more = append(more, t)
	}
	var out []tool
	for _, t := range s.tools {
		if _, other := byName[t.name]; !other && !slices.Contains(d.Hide, t.name) {
			out = append(out, t)
		}
	}
	return append(out, more...)
}

// oddTools are list entries that no server should send, and some do.
var oddTools = []string{
	`null`,
	`42`,
	`{"description":"no name at all","inputSchema":{"type":"object"}}`,
	`{"name":"","description":"an empty name","inputSchema":{"type":"object"}}`,
	`{"name":7,"description":"a number for a name","inputSchema":{"type":"object"}}`,
	`{"name":"echo","description":"the second echo","inputSchema":{"type":"object"}}`,
	`{"name":"odd_hints","description":"x","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes","idempotentHint":1}}`,
	`{"name":"odd_no_schema","description":"x"}`,
	`{"name":"odd_null_schema","description":"x","inputSchema":null}`,
	`{"name":"odd_array_schema","description":"x","inputSchema":[]}`,
	`{"name":"odd_bool_schema","description":"x","inputSchema":true}`,
	`{"name":"odd_type_schema","description":"x","inputSchema":{"type":"string"}}`,
	`{"name":"odd_cyclic_schema","description":"x","inputSchema":{"$ref":"#"}}`,
	`{"name":"odd_broken_schema","description":"x","inputSchema":{"type":"object","properties":{"a":{"type":"nonsense"}}}}`,
	`{"name":"odd_blank_description","description":"   ","inputSchema":{"type":"object"}}`,
	`{"name":"odd_number_description","description":3,"inputSchema":{"type":"object"}}`,
	`{"name":"näme mit Lücke","description":"not of [A-Za-z0-9_-]","inputSchema":{"type":"object"}}`,
	`{"name":"a__b","description":"ambiguous when joined","inputSchema":{"type":"object"}}`,
	`{"name":"_edge_","description":"underscores at the seam","inputSchema":{"type":"object"}}`,
	`{"name":"long_` + longName + `","description":"too long","inputSchema":{"type":"object"}}`,
	`{"name":"odd_task","description":"works only as a task","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}`,
}

const longName = "0123456789_0123456789_0123456789_0123456789_0123456789_0123456789_0123456789_0123456789"

// page is one answer to tools/list.
func (s *server) page(cursor string) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []json.RawMessage
	for _, t := range s.offered() {
		all = append(all, t.def)
	}
	if s.o.list != "" {
		all = s.entries()
	}
	if s.o.oddTools {
		for _, raw := range oddTools {
			all = append(all, json.RawMessage(raw))
		}
	}
	var start int
	_, _ = fmt.Sscanf(cursor, "at-%d", &start)
	next := ""
	switch {
	case s.o.cursor == "repeat":
		start, next = 0, "again"
	case s.o.cursor == "endless" && start >= len(all):
		all, start = []json.RawMessage{define(fmt.Sprintf("endless_%d", start), "One of many.", hintRead, "")}, 0
		s.endless++
		next = fmt.Sprintf("at-%d", len(s.tools)+100+s.endless)
	case s.o.cursor == "endless":
		next = fmt.Sprintf("at-%d", len(all)+100)
	}
	start = min(max(start, 0), len(all))
	end := len(all)
	if s.o.pageSize > 0 && start+s.o.pageSize < end && next == "" {
		end = start + s.o.pageSize
		next = fmt.Sprintf("at-%d", end)
	}
	out := map[string]any{"tools": all[start:end]}
	if next != "" {
		out["nextCursor"] = next
	}
	b, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	return b
}

func (s *server) find(name string) (tool, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.offered() {
		if t.name == name {
			return t, true
		}
	}
	for _, raw := range s.entries() {
		var e struct{ Name string }
		if json.Unmarshal(raw, &e) == nil && e.Name == name {
			return tool{name, witness.Read, raw, runEcho}, true
		}
	}
	return tool{}, false
}

// entries are those of -list; the lock is held.
func (s *server) entries() (all []json.RawMessage) {
	if s.o.list == "" {
		return nil
	}
	b, err := os.ReadFile(s.o.list)
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "mcpserver: -list: %v\n", err)
	}
	return all
}

// watchList says list_changed when the file of -list is another one.
func (s *server) watchList() {
	file := func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		b, _ := os.ReadFile(s.o.list)
		return string(b)
	}
	for last := file(); ; time.Sleep(10 * time.Millisecond) {
		if now := file(); now != last {
			last = now
			s.toolsChanged()
		}
	}
}

// race changes the list between the question and the answer, once.
func (s *server) race() {
	s.mu.Lock()
	next := s.o.listRace
	if next != "" {
		s.o.list, s.o.listRace = next, ""
	}
	s.mu.Unlock()
	if next != "" {
		s.toolsChanged()
	}
}

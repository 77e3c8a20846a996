package policy

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzSchemaScreen: no schema and no arguments panic, whatever is compiled can be used
// and says what it leaves out, and none costs more than the screen allows: a run that
// takes long fails by the fuzzer's own clock.
func FuzzSchemaScreen(f *testing.F) {
	for _, schema := range hostileSchemas() {
		if len(schema) < 4096 {
			f.Add([]byte(schema), []byte(`{"a":{"b":[1,2,{"c":"x"}]}}`))
		}
	}
	for _, schema := range []string{
		`{"type":"object","properties":{"path":{"type":"string","pattern":"^[a-z]+$"},"n":{"type":"integer","minimum":1}},"required":["path"],"additionalProperties":false}`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"items":[{"type":"string"}]}},"type":"object"}`,
		`{"type":"object","allOf":[{"if":{"required":["a"]},"then":{"not":{"required":["b"]}}}],"unevaluatedProperties":false}`,
		`{"properties":{"a":{"multipleOf":0.1,"enum":[1,"1",null]}},"dependentRequired":{"a":["b"]},"patternProperties":{"^x-":{}}}`,
		`true`, `null`, `[]`, `{"type":"int"}`, `{"required":null,"properties":null}`, `{"$ref":"https://example.com/x"}`,
	} {
		f.Add([]byte(schema), []byte(`{"path":"abc","a":1,"n":9007199254740993}`))
	}
	f.Fuzz(func(t *testing.T, raw, args []byte) {
		if !json.Valid(raw) { // what is not has been refused long before
			return
		}
		usable := Usable(raw)
		_ = Portable(raw)
		s, err := CompileSchema(raw)
		for _, e := range []error{usable, err} {
			if e != nil && (e.Error() == "" || len(e.Error()) > 1000 || strings.ContainsAny(e.Error(), "\n\x1b")) {
				t.Fatalf("%q", e)
			}
		}
		if err != nil {
			return
		}
		a, err := ParseArgs(args, 1<<16)
		if err != nil {
			return
		}
		if err := s.Validate(a); err != nil && (len(err.Error()) > 2000 || strings.ContainsAny(err.Error(), "\n\x1b")) {
			t.Fatalf("%q", err)
		}
		if len(s.Notes()) > 5 {
			t.Fatalf("%d notes", len(s.Notes()))
		}
	})
}

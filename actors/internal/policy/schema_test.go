package policy

import (
	"encoding/json"
	"strings"
	"testing"
)

func compile(t *testing.T, schema string) *Schema {
	t.Helper()
	s, err := CompileSchema(json.RawMessage(schema))
	if err != nil {
		t.Fatalf("schema %.200s: %v", schema, err)
	}
	return s
}

// check returns the error's text, "" for none.
func check(t *testing.T, s *Schema, args string) string {
	t.Helper()
	a, err := ParseArgs(json.RawMessage(args), 0)
	if err != nil {
		t.Fatalf("arguments %.100s: %v", args, err)
	}
	if err := s.Validate(a); err != nil {
		return err.Error()
	}
	return ""
}

func TestValidate(t *testing.T) {
	const file = `{"type":"object","properties":{"path":{"type":"string","minLength":1},"mode":{"enum":["r","w"]},
		"lines":{"type":"integer","minimum":1,"maximum":100},"tags":{"type":"array","items":{"type":"string"},"maxItems":2,"uniqueItems":true},
		"edits":{"type":"array","items":{"type":"object","properties":{"a/b":{"type":"string"}},"required":["a/b"],"additionalProperties":false}}},
		"required":["path"],"additionalProperties":false}`
	for _, c := range []struct{ schema, args, want string }{
		{file, `{"path":"a"}`, ""},
		{file, `{"path":"a","mode":"w","lines":5,"tags":["x","y"],"edits":[{"a/b":"c"}]}`, ""},
		{file, `{}`, `missing argument "path"`},
		{file, ``, `missing argument "path"`},
		{file, `{"path":"a","x":1,"b":2}`, `unknown argument "b", "x"`},
		{file, `{"path":7}`, `argument "path": must be string, not integer`},
		{file, `{"path":null}`, `argument "path": must be string, not null`},
		{file, `{"path":""}`, `argument "path": must have at least 1 characters`},
		{file, `{"path":"a","mode":"secret"}`, `argument "mode": must be one of "r", "w"`},
		{file, `{"path":"a","lines":0}`, `argument "lines": must be at least 1`},
		{file, `{"path":"a","lines":101}`, `argument "lines": must be at most 100`},
		{file, `{"path":"a","lines":1.5}`, `argument "lines": must be integer, not number`},
		{file, `{"path":"a","lines":2.0}`, ""},
		{file, `{"path":"a","tags":["x",1]}`, `argument "tags[]": must be string, not integer`},
		{file, `{"path":"a","tags":["x","x"]}`, `argument "tags": has items that are equal`},
		{file, `{"path":"a","tags":["x","y","z"]}`, `argument "tags": must have at most 2 items`},
		{file, `{"path":"a","edits":[{}]}`, `argument "edits[]": missing property "a/b"`},
		{file, `{"path":"a","edits":[{"a/b":1}]}`, `argument "edits[].a/b": must be string, not integer`},
		{file, `{"path":"a","edits":[{"a/b":"x","c":1}]}`, `argument "edits[]": unknown property "c"`},

		{`{"type":["object","null"]}`, `{}`, ""},
		{`{"properties":{"a":{"type":["string","null"]}}}`, `{"a":1}`, `argument "a": must be one of string, null, not integer`},
		{`{"properties":{"a":{"const":3}}}`, `{"a":4}`, `argument "a": must be 3`},
		{`{"properties":{"a":{"const":null}}}`, `{"a":4}`, `argument "a": must be null`},
		{`{"properties":{"a":{"pattern":"^x+$"}}}`, `{"a":"y"}`, `argument "a": must match the pattern "^x+$"`},
		{`{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`, `{"a":1}`, `argument "a": has none of the allowed forms`},
		{`{"properties":{"a":{"oneOf":[{"type":"string"},{"minLength":1}]}}}`, `{"a":"x"}`, `argument "a": fits more than one of the forms that exclude each other`},
		{`{"properties":{"a":{"not":{"type":"string"}}}}`, `{"a":"x"}`, `argument "a": is not allowed`},
		{`{"properties":{"a":false}}`, `{"a":1}`, `argument "a": is not allowed`},
		{`{"properties":{"a":true,"b":{}}}`, `{"a":1,"b":[]}`, ""},
		{`{"additionalProperties":{"type":"string"}}`, `{"secret":1}`, `argument "*": must be string, not integer`},
		{`{"propertyNames":{"maxLength":3}}`, `{"abcd":1}`, `argument "*": must have at most 3 characters`},
		{`{"properties":{"a":{"exclusiveMinimum":0}}}`, `{"a":0}`, `argument "a": must be more than 0`},
		{`{"properties":{"a":{"multipleOf":5}}}`, `{"a":7}`, `argument "a": must be a multiple of 5`},
		{`{"properties":{"a":{"minProperties":1}}}`, `{"a":{}}`, `argument "a": must have at least 1 properties`},
		{`{"minProperties":1}`, `{}`, `arguments: must have at least 1 properties`},
		{`{"properties":{"a":{"contains":{"type":"null"}}}}`, `{"a":[1]}`, `argument "a": does not have the items that it must have`},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, `arguments: needs other properties beside it`},
		{`{"if":{"required":["a"]},"then":{"required":["b"]}}`, `{"a":1}`, `missing argument "b"`},

		// References, local and without a circle.
		{`{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"object","properties":{"b":{"$ref":"#/$defs/y"}}},"y":{"type":"string"}}}`,
			`{"a":{"b":1}}`, `argument "a.b": must be string, not integer`},
		{`{"properties":{"a":{"$ref":"#name"}},"$defs":{"x":{"$anchor":"name","type":"string"}}}`, `{"a":1}`, `argument "a": must be string, not integer`},
		{`{"properties":{"a":{"$dynamicRef":"#name"}},"$defs":{"x":{"$dynamicAnchor":"name","type":"string"}}}`, `{"a":1}`, `argument "a": must be string, not integer`},
		{`{"properties":{"a":{"type":"string"},"b":{"$ref":"#/properties/a"}}}`, `{"b":1}`, `argument "b": must be string, not integer`},
		{`{"properties":{"a b":{"type":"string"},"b":{"$ref":"#/properties/a%20b"}}}`, `{"b":1}`, `argument "b": must be string, not integer`},
		{`{"$id":"https://x.example/s.json","properties":{"a":{"$ref":"https://x.example/s.json#/$defs/n"}},"$defs":{"n":{"type":"number"}}}`, `{"a":"1"}`, `argument "a": must be number, not string`},
		{`{"$id":"relative","properties":{"a":{"type":"number"}}}`, `{"a":"1"}`, `argument "a": must be number, not string`},
		// A circle that nothing leads to is nobody's trouble.
		{`{"properties":{"a":{"type":"string"}},"$defs":{"x":{"$ref":"#/$defs/x"}}}`, `{"a":1}`, `argument "a": must be string, not integer`},

		// Older drafts, as generators write them.
		{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"n":{"type":"number","exclusiveMinimum":0},"r":{"$ref":"#/definitions/R"}},
			"definitions":{"R":{"type":"string"}},"additionalProperties":false,"required":["n"]}`, `{"n":0}`, `argument "n": must be more than 0`},
		{`{"$schema":"http://json-schema.org/draft-07/schema","properties":{"r":{"$ref":"#/definitions/R"}},"definitions":{"R":{"type":"string"}}}`, `{"r":1}`, `argument "r": must be string, not integer`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"p":{"items":[{"type":"string"}],"additionalItems":false}}}`, `{"p":["a",1]}`, `argument "p[]": is not allowed`},
		{`{"properties":{"p":{"items":[{"type":"string"}],"additionalItems":{"type":"null"}}}}`, `{"p":[1]}`, `argument "p[]": must be string, not integer`},
		{`{"properties":{"p":{"items":[{"type":"string"}],"additionalItems":{"type":"null"}}}}`, `{"p":["a",null]}`, ``},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","properties":{"n":{"minimum":3,"exclusiveMinimum":true}}}`, `{"n":3}`, `argument "n": must be more than 3`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"a":["b"],"c":{"required":["d"]}}}`, `{"c":1}`, `missing argument "d"`},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","properties":{"a":{"type":"string"}}}`, `{"a":1}`, `argument "a": must be string, not integer`},
		{`{"$schema":"urn:somebody:else","properties":{"a":{"type":"string"}}}`, `{"a":1}`, `argument "a": must be string, not integer`},
		{`{"definitions":{"R":{"type":"string"}},"properties":{"r":{"$ref":"#/definitions/R"}}}`, `{"r":1}`, `argument "r": must be string, not integer`},

		// Odd but harmless.
		{`{"type":"object","properties":null,"required":null,"additionalProperties":null}`, `{"a":1}`, ""},
		{`{"properties":{"a":null}}`, `{"a":1}`, ""},
		{`{"properties":{"a":{"type":"string","required":true}}}`, `{"a":1}`, `argument "a": must be string, not integer`},
		{`{"anyOf":[]}`, `{}`, ""},
		{`{"properties":{"a":{"enum":[]}}}`, `{"a":1}`, ""},
		{`{"properties":{"$ref":{"type":"string"},"type":{"type":"string"},"$id":{"type":"number"}}}`, `{"type":1}`, `argument "type": must be string, not integer`},
		{`{"properties":{"a":{"pattern":"^(?!x)"}}}`, `{"a":"x"}`, ""},
		{`{"properties":{"a":{"format":"email","x-unknown":[1]}}}`, `{"a":"x"}`, ""},

		// Numbers keep their value.
		{`{"properties":{"n":{"type":"integer"}}}`, `{"n":9007199254740993}`, ""},
		{`{"properties":{"n":{"type":"integer"}}}`, `{"n":18446744073709551615}`, ""},
		{`{"properties":{"n":{"type":"integer"}}}`, `{"n":-123456789012345678901234567890}`, ""},
		{`{"properties":{"n":{"type":"number","minimum":1}}}`, `{"n":1e400}`, ""},
		{`{"properties":{"n":{"type":"number","maximum":1}}}`, `{"n":-1e400}`, ""},
		{`{"properties":{"n":{"const":9007199254740993}}}`, `{"n":9007199254740993}`, ""},
		{`{"properties":{"n":{"const":9007199254740993}}}`, `{"n":9007199254740992}`, `argument "n": must be 9007199254740993`},
		{`{"properties":{"n":{"enum":[18446744073709551615]}}}`, `{"n":18446744073709551615}`, ""},
		{`{"properties":{"n":{"maximum":9223372036854775807}}}`, `{"n":9223372036854775807}`, ""},
		{`{"properties":{"n":{"maximum":9007199254740993}}}`, `{"n":9007199254740993}`, ""},
		{`{"properties":{"n":{"maximum":9007199254740991}}}`, `{"n":9007199254740992}`, `argument "n": must be at most 9007199254740991`},
		{`{"properties":{"n":{"multipleOf":0.01}}}`, `{"n":19.99}`, ""},
		{`{"properties":{"n":{"multipleOf":3}}}`, `{"n":9007199254740993}`, ""},
		{`{"properties":{"n":{"const":1.0}}}`, `{"n":1}`, ""},
		{`{"properties":{"n":{"const":{"a":[1,"x",null]}}}}`, `{"n":{"a":[1.0,"x",null]}}`, ""},
	} {
		if got := check(t, compile(t, c.schema), c.args); got != c.want {
			t.Errorf("schema %s\n args %s\n  got %q\n want %q", c.schema, c.args, got, c.want)
		}
	}
}

// TestErrorsKeepValuesToThemselves: a value of the caller never comes back in a message.
func TestErrorsKeepValuesToThemselves(t *testing.T) {
	const secret = "s3cr3t"
	for _, schema := range []string{
		`{"properties":{"a":{"type":"integer"}}}`, `{"properties":{"a":{"enum":["x"]}}}`, `{"properties":{"a":{"const":"x"}}}`,
		`{"properties":{"a":{"maxLength":1}}}`, `{"properties":{"a":{"minLength":100}}}`, `{"properties":{"a":{"pattern":"^x$"}}}`,
		`{"properties":{"a":{"anyOf":[{"type":"integer"},{"const":1}]}}}`, `{"properties":{"a":{"oneOf":[{"type":"integer"}]}}}`,
		`{"properties":{"a":{"not":{}}}}`, `{"properties":{"a":{"allOf":[{"$ref":"#/$defs/x"}]}},"$defs":{"x":{"type":"null"}}}`,
	} {
		got := check(t, compile(t, schema), `{"a":"`+secret+`"}`)
		if got == "" || strings.Contains(got, secret) || len(got) > 200 {
			t.Errorf("%s: %q", schema, got)
		}
	}
}

func TestNotes(t *testing.T) {
	for schema, want := range map[string]string{
		`{"properties":{"a":{"pattern":"(?=x)"}}}`: `"/properties/a" has a pattern that is not used`,
		`{"required":"a"}`:                         "the root has a required that is no list of names",
		`{"properties":{"a":{"minimum":"3"}}}`:     "has a minimum that is no usable number",
		`{"properties":{"a":{"multipleOf":0.5}}}`:  "",
		`{"type":"object"}`:                        "",
	} {
		got := strings.Join(compile(t, schema).Notes(), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: notes %q, want %q", schema, got, want)
		}
	}
}

// TestTooExpensiveIsNotChecked: a call is never held up by its own size, and never
// refused for it.
func TestTooExpensiveIsNotChecked(t *testing.T) {
	var wide strings.Builder // 600 subschemas look at each item
	wide.WriteString(`{"properties":{"a":{"items":{"anyOf":[`)
	for i := range 600 {
		if i > 0 {
			wide.WriteByte(',')
		}
		wide.WriteString(`{"type":"null"}`)
	}
	wide.WriteString(`]}}}}`)
	s := compile(t, wide.String())
	if got := check(t, s, `{"a":[1]}`); got == "" {
		t.Error("one item is affordable")
	}
	if got := check(t, s, `{"a":[`+strings.Repeat("1,", 20_000)+`1]}`); got != "" {
		t.Errorf("12 million evaluations were made: %s", got)
	}
	s = compile(t, `{"properties":{"a":{"pattern":"^[a-z]{1,1000}$"}}}`)
	if got := check(t, s, `{"a":"A"}`); got == "" {
		t.Error("one letter is affordable")
	}
	if got := check(t, s, `{"a":"`+strings.Repeat("A", 1<<20)+`"}`); got != "" {
		t.Errorf("a long text was matched: %s", got)
	}
}

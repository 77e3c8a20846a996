package policy

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// TestB50UsableSchemas: a schema that would make strict clients refuse the whole list is
// told from one that is merely unusual, large or recursive.
func TestB50UsableSchemas(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"a":{"type":"int"}}}`:                                            `/properties/a/type`,
		`{"type":"object","properties":{"a":{"type":["string","none"]}}}`:                                `/properties/a/type`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}}}`:                                      "does not exist",
		`{"type":"object","properties":{"a":{"$ref":"#b"}}}`:                                             "does not exist",
		`{"type":"object","properties":{"a":{"$ref":"https://example.com/schema.json"}}}`:                "not fetched",
		`{"type":"object","properties":{"a":{"$ref":"other.json#/x"}}}`:                                  "not fetched",
		`{"type":"object","$ref":"#"}`:                                                                   "refers to itself",
		`{"type":"object","allOf":[{"$ref":"#/allOf/0"}]}`:                                               "refers to itself",
		`{"type":"object","properties":[]}`:                                                              "/properties",
		`{"type":"object","properties":{"a":7}}`:                                                         "neither an object nor a boolean",
		`{"type":"object","required":"a"}`:                                                               "/required",
		`{"type":"object","properties":{"a":{"minimum":"3"}}}`:                                           "/properties/a/minimum",
		`{"type":"object","properties":{"a":{"description":3}}}`:                                         "/properties/a/description",
		`{"type":"object","properties":` + strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 201): "nests too deep",

		`{"type":"object","properties":null,"required":null,"description":null}`:                                                                                                          "",
		`{"type":"object","properties":{"a":{"type":null,"enum":[]},"b":true}}`:                                                                                                           "",
		`{"type":"object","properties":{"a":{"pattern":"(?i)\\Ax\\Z"}}}`:                                                                                                                  "",
		`{"type":"object","$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}}}},"properties":{"n":{"$ref":"#/$defs/n"}}}`:                                            "",
		`{"type":"object","properties":{"child":{"$ref":"#"}}}`:                                                                                                                           "",
		`{"$schema":"http://json-schema.org/draft-07/schema#","$id":"https://x/y","type":"object","definitions":{"a b":{}},"properties":{"p":{"$ref":"https://x/y#/definitions/a%20b"}}}`: "",
		`{"type":"object","$defs":{"a":{"$anchor":"here"}},"properties":{"p":{"$ref":"#here"}}}`:                                                                                          "",
		`{"type":"object","properties":{"p":{"items":[{"type":"string"}],"x-vendor":{"type":"int"}}}}`:                                                                                    "",
		`{"type":"object","properties":{"a":{"const":null,"default":null,"examples":"x"}}}`:                                                                                               "",
		`{"type":"object","description":"` + strings.Repeat("x", 2*MaxSchemaBytes) + `"}`:                                                                                                 "",
	} {
		err := Usable(json.RawMessage(schema))
		if err == nil {
			if _, compiled := CompileSchema(json.RawMessage(schema)); errors.Is(compiled, ErrBroken) {
				err = compiled
			}
		}
		switch {
		case want == "" && err != nil:
			t.Errorf("%.120s: refused: %v", schema, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, ErrBroken)):
			t.Errorf("%.120s: %v, want %q", schema, err, want)
		}
	}
}

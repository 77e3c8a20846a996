package policy

import "testing"

func TestPortable(t *testing.T) {
	for _, s := range []string{
		`{}`, `true`, `{"type":"object","properties":{"a":true,"b":{"type":["string","null"],"nullable":true}},"required":["a"],"unknown":null}`,
		`{"exclusiveMinimum":1.5,"multipleOf":0.01,"minLength":1e400,"const":null,"default":null,"enum":[null]}`,
		`{"$defs":{"a":{"$ref":"#/$defs/a"}},"items":[{},false],"dependencies":{"a":["b"],"c":{}},"format":"nope","allOf":[]}`,
		`{"properties":{"id":{"type":"string"},"minLength":{}}}`, // names, not keywords
	} {
		if err := Portable([]byte(s)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []string{
		`5`, `null`, `{`, `{"minLength":"x"}`, `{"minimum":null}`, `{"exclusiveMaximum":true}`, `{"enum":[]}`, `{"enum":5}`, `{"type":"int"}`, `{"type":5}`,
		`{"properties":{"a":{"required":"a"}}}`, `{"properties":{"a":null}}`, `{"properties":[]}`, `{"items":5}`, `{"allOf":{}}`, `{"anyOf":[5]}`, `{"not":[]}`,
		`{"format":5}`, `{"uniqueItems":"x"}`, `{"nullable":true}`, `{"id":"x"}`, `{"$id":5}`, `{"$ref":5}`, `{"dependencies":5}`, `{"dependencies":{"a":5}}`,
		`{"pattern":5}`, `{"pattern":"("}`, `{"patternProperties":{"(":{}}}`, `{"patternProperties":{"a":5}}`, `{"$defs":{"a":{"pattern":"["}}}`, `{"then":{"minItems":[]}}`,
	} {
		if Portable([]byte(s)) == nil {
			t.Errorf("%s passes", s)
		}
	}
}

// The verdicts of JavaScript's `new RegExp(p, "u")`. What it takes and we do not is
// no error, only caution.
func TestECMAPattern(t *testing.T) {
	for _, p := range []string{``, `^a+?b{2,}c{1,3}d{4}$`, `^(?!x)(?=y)(?<=z)(?<!w)$`, `(?:a|b)(?<n>c)`, `[^a-z\-\]_]`, `\d\w\s\b\B\/\.`, `\x41\u0041\u{1F600}\cA\0`,
		`\p{L}\P{Lu}`, `[\b\d.]`, `[[]`, `[^a]`, `é`, `a\|b`} {
		if err := ecmaPattern(p); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
	for _, p := range []string{`(`, `)`, `[`, `]`, `a{`, `}`, `a{,2}`, `a{2,1}`, `a{}`, `a{1,2,3}`, `{2}`, `^*`, `$+`, `\b?`, `*`, `a**`, `(?i)x`, `(?P<n>x)`, `(?>x)`, `\z`, `\A`, `\Q`, `a\-b`, `\_`, `\`, `\1`, `\00`, `\x4`, `\u12`, `\u{110000}`, `\u{}`,
		`[z-a]`, `[\s--]`, `[[:alpha:]]`, `(?=a)*`, `(?<1>a)`, `\p{Nonsense}`, `\pL`, `\k`, `\c1`} {
		if ecmaPattern(p) == nil {
			t.Errorf("%s passes", p)
		}
	}
}

package main

import (
	"strings"
	"testing"
)

const argsSchema = `{"type":"object","properties":{
 "s":{"type":"string"},"n":{"type":"number"},"i":{"type":"integer"},"b":{"type":"boolean"},
 "l":{"type":"array"},"o":{"type":"object"},"opt":{"type":["integer","null"]},"either":{"type":["string","number"]},
 "e":{"enum":["1","2"]},"odd":7}}`

func TestMergeArguments(t *testing.T) {
	tests := []struct {
		name, text string
		pairs      []string
		want, err  string
	}{
		{name: "text stays text", pairs: []string{"s=12"}, want: `{"s":"12"}`},
		{name: "true as text", pairs: []string{"s=true"}, want: `{"s":"true"}`},
		{name: "numbers keep their digits", pairs: []string{"n=1.0", "i=9007199254740993"}, want: `{"n":1.0,"i":9007199254740993}`},
		{name: "boolean", pairs: []string{"b=false"}, want: `{"b":false}`},
		{name: "what does not fit is sent as text", pairs: []string{"i=ten", "b=yes"}, want: `{"i":"ten","b":"yes"}`},
		{name: "list and object", pairs: []string{`l=[1,"a"]`, `o={"x":1}`}, want: `{"l":[1,"a"],"o":{"x":1}}`},
		{name: "null where it is allowed", pairs: []string{"opt=null"}, want: `{"opt":null}`},
		{name: "either", pairs: []string{"either=1"}, want: `{"either":1}`},
		{name: "enum of text", pairs: []string{"e=1"}, want: `{"e":"1"}`},
		{name: "unknown key is guessed", pairs: []string{"x=1", "y=[1", `z="q"`, "w=hello"}, want: `{"x":1,"y":"[1","z":"\"q\"","w":"hello"}`},
		{name: "odd schema guides nothing", pairs: []string{"odd=1"}, want: `{"odd":1}`},
		{name: "value with equals sign", pairs: []string{"s=a=b"}, want: `{"s":"a=b"}`},
		{name: "empty value", pairs: []string{"s="}, want: `{"s":""}`},
		{name: "exact JSON", pairs: []string{`s:="x"`, `n:=[1]`}, want: `{"s":"x","n":[1]}`},
		{name: "exact JSON that is none", pairs: []string{"s:=x"}, err: `use s=TEXT`},
		{name: "no name", pairs: []string{"=1"}, err: "has no name"},
		{name: "added to an object, order and bytes kept", text: `{"z":1.50, "s":"a"}`, pairs: []string{"s=b", "n=2"}, want: `{"z":1.50,"s":"b","n":2}`},
		{name: "added to null", text: " null ", pairs: []string{"s=b"}, want: `{"s":"b"}`},
		{name: "added to a list", text: `[1]`, pairs: []string{"s=b"}, err: "no JSON object"},
		{name: "added to broken JSON", text: `{"a":`, pairs: []string{"s=b"}, err: "unexpected EOF"},
		{name: "added to something with a tail", text: `{} x`, pairs: []string{"s=b"}, err: "something follows"},
		{name: "added to a doubled key", text: `{"a":1,"a":2}`, pairs: []string{"s=b"}, err: "twice"},
	}
	for _, tt := range tests {
		got, err := mergeArguments(tt.text, tt.pairs, []byte(argsSchema))
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: error %v, want %q", tt.name, err, tt.err)
			}
		case err != nil || got != tt.want:
			t.Errorf("%s: got %s, %v; want %s", tt.name, got, err, tt.want)
		}
	}
}

package dispatch

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestIsError(t *testing.T) {
	for _, tc := range []struct {
		raw  string
		want bool
	}{
		{`{"isError":true}`, true},
		{` { "content" : [ {"type":"text","text":"a\\\"}{"} ] , "isError" : true }`, true},
		{`{"isError":false}`, false},
		{`{}`, false},
		{`{"content":[{"isError":true}]}`, false},
		{`{"structuredContent":{"isError":true},"n":-1.5e3}`, false},
		{`{"a":[[],{},"]",null,1,true],"isError":true}`, true},
		{`{"text":"\"isError\":true"}`, false},
		{`{"isErr\u006fr":true}`, true},
		{`{"isError":true,"isError":false}`, false},
		{`{"isError":"true"}`, false},
		{`{"isError":null}`, false},
		{`[{"isError":true}]`, false},
		{`"isError"`, false},
		{`{"isError":true`, true},
		{`{"isError":`, false},
		{`{"isError"`, false},
		{`{"a":,"isError":true}`, false},
		{`{"a":"isError`, false},
		{``, false},
	} {
		if got := isError(json.RawMessage(tc.raw)); got != tc.want {
			t.Errorf("%s: %v", tc.raw, got)
		}
	}
}

func TestIsErrorAgreesWithTheDecoder(t *testing.T) {
	big := strings.Repeat(`{"type":"image","data":"`+strings.Repeat("A", 500)+`","n":[1,2,{"x":"\\"}]},`, 50)
	for _, tail := range []string{`"isError":true`, `"isError":false`, `"_meta":{"isError":true}`} {
		raw := json.RawMessage(`{"content":[` + strings.TrimSuffix(big, ",") + `],` + tail + `}`)
		var want struct {
			IsError bool `json:"isError"`
		}
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if isError(raw) != want.IsError {
			t.Error(tail)
		}
	}
}

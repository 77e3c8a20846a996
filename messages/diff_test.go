package messages

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSince(t *testing.T) {
	tl := func(name, digest string, listed bool) Tool {
		return Tool{Name: name, Server: "s", RemoteName: name, Digest: digest, Listed: listed}
	}
	before := NewCatalogue(1, []Tool{tl("a", "1", true), tl("b", "1", true), tl("c", "1", true), tl("d", "1", false), tl("e", "1", true)}, nil, nil)
	after := NewCatalogue(2, []Tool{tl("a", "1", true), tl("b", "2", true), tl("d", "1", true), tl("e", "1", false), tl("f", "1", true)}, nil, nil)
	names := func(list []Tool) (out []string) {
		for _, x := range list {
			out = append(out, x.Name)
		}
		return out
	}
	d := after.Since(before)
	got := [][]string{names(d.Added), names(d.Removed), names(d.Changed)}
	if diff := cmp.Diff([][]string{{"d", "f"}, {"c", "e"}, {"b"}}, got); diff != "" || d.Empty() {
		t.Error(diff)
	}
	back := before.Since(after)
	if diff := cmp.Diff([][]string{{"c", "e"}, {"d", "f"}, {"b"}}, [][]string{names(back.Added), names(back.Removed), names(back.Changed)}); diff != "" {
		t.Error(diff)
	}
	if !before.Since(before).Empty() {
		t.Error("a catalogue differs from itself")
	}
	allowed := tl("a", "1", true)
	allowed.Permission = Allow
	if d := NewCatalogue(3, []Tool{allowed}, nil, nil).Since(NewCatalogue(1, []Tool{tl("a", "1", true)}, nil, nil)); len(d.Changed) != 1 {
		t.Errorf("another permission is no change: %+v", d)
	}
}

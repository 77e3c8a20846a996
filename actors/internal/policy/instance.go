package policy

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// The schema library prints the values that it complains about, nested errors
// included, which for a large argument costs its size many times over and would
// put the caller's data into messages. These types are maps, lists and strings to
// it, but print as an ellipsis.
type (
	object map[string]any
	list   []any
	text   string
)

func (object) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("…")) }
func (list) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte("…")) }
func (text) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte("…")) }

// instance turns a decoded value (in place) into what the schema library validates.
func instance(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = instance(e)
		}
		return object(v)
	case []any:
		for i, e := range v {
			v[i] = instance(e)
		}
		return list(v)
	case string:
		return text(v)
	case json.Number:
		return number(v)
	default:
		return v
	}
}

// number keeps integers exact as far as 64 bits reach; the library takes a
// json.Number for a string. A magnitude that no float holds becomes the largest
// one, which is on the right side of every bound and an integer, as it should be.
func number(n json.Number) any {
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return i
	}
	if u, err := strconv.ParseUint(string(n), 10, 64); err == nil {
		return u
	}
	f, _ := strconv.ParseFloat(string(n), 64) // out of range yields ±Inf
	if math.IsInf(f, 0) {
		return math.Copysign(math.MaxFloat64, f)
	}
	return f
}

// beyondFloat reports whether v holds an integer that a float64 may not hold exactly.
func beyondFloat(v any) bool {
	const exact = 1 << 53
	switch v := v.(type) {
	case object:
		for _, e := range v {
			if beyondFloat(e) {
				return true
			}
		}
	case list:
		for _, e := range v {
			if beyondFloat(e) {
				return true
			}
		}
	case int64:
		return v > exact || v < -exact
	case uint64:
		return true
	case float64:
		return math.Abs(v) > exact
	}
	return false
}

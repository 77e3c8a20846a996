package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// stats measures a decoded value, for the budgets of the check.
type stats struct {
	perDepth  []int // values at each nesting depth, the root at 0
	textBytes int   // of all strings, keys too
}

func (s *stats) count(depth int) {
	for len(s.perDepth) <= depth {
		s.perDepth = append(s.perDepth, 0)
	}
	s.perDepth[depth]++
}

var errTooDeep = errors.New("nests too deep")

// decode reads one JSON value as map[string]any, []any, string, json.Number, bool
// and nil. Unlike encoding/json it refuses a key that occurs twice in one object:
// who reads the first and who reads the last would see different things.
func decode(raw []byte, maxDepth int) (any, stats, error) {
	d := decoder{dec: json.NewDecoder(bytes.NewReader(raw)), maxDepth: maxDepth}
	d.dec.UseNumber()
	v, err := d.value(0)
	if err != nil {
		return nil, d.stats, err
	}
	if _, err := d.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, d.stats, errors.New("data after the end of the value")
	}
	return v, d.stats, nil
}

type decoder struct {
	dec      *json.Decoder
	maxDepth int
	stats    stats
}

func (d *decoder) value(depth int) (any, error) {
	if depth > d.maxDepth {
		return nil, fmt.Errorf("%w: more than %d levels", errTooDeep, d.maxDepth)
	}
	tok, err := d.dec.Token()
	if err != nil {
		return nil, err
	}
	d.stats.count(depth)
	switch t := tok.(type) {
	case json.Delim:
		if t == '{' {
			return d.object(depth)
		}
		return d.array(depth)
	case string:
		d.stats.textBytes += len(t)
		return t, nil
	default:
		return t, nil
	}
}

func (d *decoder) object(depth int) (any, error) {
	m := map[string]any{}
	for d.dec.More() {
		tok, err := d.dec.Token()
		if err != nil {
			return nil, err
		}
		key, ok := tok.(string)
		if !ok {
			return nil, errors.New("an object key is not a string")
		}
		if _, twice := m[key]; twice {
			return nil, fmt.Errorf("key %s occurs twice in one object", short(key))
		}
		d.stats.textBytes += len(key)
		if m[key], err = d.value(depth + 1); err != nil {
			return nil, err
		}
	}
	_, err := d.dec.Token() // the closing brace
	return m, err
}

func (d *decoder) array(depth int) (any, error) {
	list := []any{}
	for d.dec.More() {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := d.dec.Token() // the closing bracket
	return list, err
}

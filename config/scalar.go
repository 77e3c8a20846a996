package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// text reads any scalar as the text that the file has.
func (d *decoder) text(v value) (string, bool) {
	if v.node.Kind == yaml.ScalarNode {
		switch v.node.ShortTag() {
		case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
			return v.node.Value, true
		}
	}
	if isNull(v.node) {
		d.errorf(v, `no value; write "" where an empty text is meant`)
	} else {
		d.errorf(v, "expected text, found %s", kindWord(v.node))
	}
	return "", false
}

func (d *decoder) textInto(p *string) func(value) {
	return func(v value) {
		if s, ok := d.text(v); ok {
			*p = s
		}
	}
}

func (d *decoder) boolInto(p *bool) func(value) {
	return func(v value) {
		if v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == "!!bool" {
			*p = strings.EqualFold(v.node.Value, "true")
			return
		}
		d.errorf(v, "expected true or false")
	}
}

func (d *decoder) intInto(p *int) func(value) {
	return func(v value) {
		n, err := strconv.Atoi(v.node.Value)
		if v.node.Kind != yaml.ScalarNode || err != nil || v.node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
			d.errorf(v, "expected a whole number")
			return
		}
		*p = n
	}
}

func (d *decoder) floatInto(p *float64) func(value) {
	return func(v value) {
		n, err := strconv.ParseFloat(v.node.Value, 64)
		if v.node.Kind != yaml.ScalarNode || err != nil {
			d.errorf(v, "expected a number")
			return
		}
		*p = n
	}
}

func (d *decoder) durationInto(p *time.Duration) func(value) {
	return func(v value) {
		if v.node.Kind != yaml.ScalarNode {
			d.errorf(v, "expected a duration such as 30s, found %s", kindWord(v.node))
			return
		}
		n, err := ParseDuration(v.node.Value)
		if err != nil {
			d.errorf(v, "%v", err)
			return
		}
		*p = n
	}
}

func (d *decoder) sizeInto(p *int64) func(value) {
	return func(v value) {
		if v.node.Kind != yaml.ScalarNode {
			d.errorf(v, "expected a size such as 8MiB, found %s", kindWord(v.node))
			return
		}
		n, err := ParseSize(v.node.Value)
		if err != nil {
			d.errorf(v, "%v", err)
			return
		}
		*p = n
	}
}

// word reads one of a fixed set of words.
func (d *decoder) word(v value, allowed ...string) (string, bool) {
	s := v.node.Value
	if v.node.Kind == yaml.ScalarNode {
		for _, a := range allowed {
			if s == a {
				return s, true
			}
		}
	}
	msg := "expected one of " + strings.Join(allowed, ", ")
	if v.node.Kind == yaml.ScalarNode && !isNull(v.node) {
		msg = fmt.Sprintf("%s is not known: one of %s", quote(s), strings.Join(allowed, ", "))
		w := suggest(s, allowed)
		if a := foreignWords[fold(s)]; w == "" && slices.Contains(allowed, a) {
			w = a
		}
		if w != "" {
			msg += fmt.Sprintf("; did you mean %s?", w)
		}
	}
	d.errorf(v, "%s", msg)
	return "", false
}

func wordInto[T ~string](d *decoder, p *T, allowed ...T) func(value) {
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = string(a)
	}
	return func(v value) {
		if w, ok := d.word(v, words...); ok {
			*p = T(w)
		}
	}
}

// items lists the values of a sequence.
func (d *decoder) items(v value) ([]value, bool) {
	if v.node.Kind != yaml.SequenceNode {
		d.errorf(v, "expected a list such as [a, b], found %s", kindWord(v.node))
		return nil, false
	}
	out := make([]value, 0, len(v.node.Content))
	for i, n := range v.node.Content {
		out = append(out, v.child(n, "["+strconv.Itoa(i)+"]"))
	}
	return out, true
}

func (d *decoder) textsInto(p *[]string) func(value) {
	return func(v value) {
		vs, ok := d.items(v)
		if !ok {
			return
		}
		list := make([]string, 0, len(vs))
		for _, e := range vs {
			if d.at != nil {
				d.at[e.rel] = e
			}
			if s, ok := d.text(e); ok {
				list = append(list, s)
			}
		}
		*p = list
	}
}

// mapInto reads free keys with a text each.
func (d *decoder) mapInto(p *map[string]string, check func(value, string)) func(value) {
	return func(v value) {
		fs, ok := d.fields(v)
		if !ok {
			return
		}
		m := make(map[string]string, len(fs))
		for _, f := range fs {
			if d.at != nil {
				d.at[f.rel] = f.value
			}
			s, ok := d.text(f.value)
			if !ok {
				continue
			}
			if check != nil {
				check(f.value, s)
			}
			m[f.key] = s
		}
		*p = m
	}
}

// globsInto reads a list of globs.
func (d *decoder) globsInto(p *[]string) func(value) {
	return func(v value) {
		d.textsInto(p)(v)
		for i, g := range *p {
			if msg := badGlob(g); msg != "" {
				e := v
				e.path = join(v.path, "["+strconv.Itoa(i)+"]")
				if at, ok := d.at[join(v.rel, "["+strconv.Itoa(i)+"]")]; ok {
					e = at
				}
				d.errorf(e, "%s", msg)
			}
		}
	}
}

// badGlob says what is wrong with a name pattern, "" if nothing is. The gate knows two
// wild characters; a pattern that hopes for more would silently match nothing.
func badGlob(g string) string {
	switch {
	case g == "":
		return `an empty name matches nothing; write "*" for every name`
	case strings.ContainsAny(g, "[]"):
		return "only * and ? are wild in a name; write ? in place of [ and ]"
	}
	return ""
}

package policy

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
)

// MaxSchemaBytes is the size up to which a schema is looked at.
const MaxSchemaBytes = 64 << 10

// The screen's other limits. What is over them is no schema that a tool needs; the
// engine below would spend seconds on it, or its whole stack.
const (
	maxSchemaDepth = 32     // subschemas inside one another
	maxSubschemas  = 2_000  // as written
	maxExpansion   = 20_000 // with every reference followed
	maxJSONDepth   = 128
	maxPattern     = 1 << 10 // bytes of one regular expression
	maxProgram     = 4_000   // instructions of one compiled regular expression
	maxConsumed    = 64      // levels of the arguments that the schema looks into
)

// The budgets of one validation. Beyond them the server judges alone.
const (
	maxEvaluations = 5_000_000
	maxTextWork    = 500_000_000 // bytes times instructions
)

// Schema is a tool's input schema, ready to check arguments. It is immutable and
// may be used from any number of goroutines.
type Schema struct {
	resolved *jsonschema.Resolved
	nodes    map[string]*node // by the path that the library calls it, "root" for the root
	perDepth []int            // expanded subschemas by the depth of the value they look at
	textWork int              // expanded cost of looking at one byte of text
	multiple bool             // multipleOf is used: computed in floats
	notes    []string
}

// CompileSchema screens a schema and prepares it. An error says why it cannot be
// used, in words for the operator; the tool then works without the check.
//
// Nothing of the raw schema reaches the engine as it came: the keywords that mean
// something are copied, one by one, into a schema of our own. So a keyword in
// another spelling (encoding/json would take "$REF" for "$ref"), a remote
// reference, an identifier that moves the base of references, or a value of the
// wrong type has no way in.
func CompileSchema(raw json.RawMessage) (s *Schema, err error) {
	if len(raw) > MaxSchemaBytes {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(raw), MaxSchemaBytes)
	}
	v, _, err := decode(raw, maxJSONDepth)
	if err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	b := newBuilder(v)
	root, err := b.schema(v, "", 0)
	if err != nil {
		return nil, err
	}
	if b.closed != "" && b.dropped != "" {
		// Leaving a keyword out makes a schema more lenient, except below a
		// negation or a count of matches, where it may do the opposite.
		return nil, fmt.Errorf("%s, which cannot be left out beside %s", b.dropped, b.closed)
	}
	if err := b.link(); err != nil {
		return nil, err
	}
	perDepth, textWork, err := expand(root)
	if err != nil {
		return nil, err
	}
	defer func() { // the library asserts by panicking
		if p := recover(); p != nil {
			s, err = nil, fmt.Errorf("it cannot be resolved: %s", short(fmt.Sprint(p)))
		}
	}()
	resolved, err := root.schema.Resolve(&jsonschema.ResolveOptions{}) // without a loader: nothing is fetched
	if err != nil {
		return nil, fmt.Errorf("it cannot be resolved: %s", short(err.Error()))
	}
	s = &Schema{resolved: resolved, nodes: make(map[string]*node, len(b.nodes)), perDepth: perDepth,
		textWork: textWork, multiple: b.multiple, notes: b.notes}
	for path, n := range b.nodes {
		n.inPlace, n.below = nil, nil // the graph has done its work
		s.nodes[path] = n
	}
	s.nodes["root"] = root
	delete(s.nodes, "")
	return s, nil
}

// Notes name the parts of the schema that are not checked.
func (s *Schema) Notes() []string { return s.notes }

// Validate checks the arguments. The error names the argument and what is wrong
// with it, and never repeats a value. Nil also means that the check cannot be made
// at a sensible price.
func (s *Schema) Validate(a Args) (err error) {
	if !s.affordable(a) {
		return nil
	}
	defer func() {
		if recover() != nil { // a fault of the engine is no fault of the caller
			err = nil
		}
	}()
	if fault := s.resolved.Validate(a.value); fault != nil {
		return errors.New(s.explain(fault))
	}
	return nil
}

// affordable estimates the work from above: each expanded subschema looks at most
// once at each value of its depth.
func (s *Schema) affordable(a Args) bool {
	work := 0
	for depth, n := range s.perDepth {
		if depth < len(a.stats.perDepth) {
			work += n * a.stats.perDepth[depth] // at most 20,000 times the number of values: no overflow
		}
	}
	if work > maxEvaluations || s.textWork*a.stats.textBytes > maxTextWork {
		return false
	}
	// The library divides in floats, which is wrong for integers beyond 2^53.
	return !s.multiple || !beyondFloat(a.value)
}

package policy

import (
	"errors"
	"fmt"
)

// ErrBeyond marks a schema that is well formed, but recursive or too large to check
// values against: the bridge does not use it, others may.
var ErrBeyond = errors.New("it is not used here")

type beyond struct{ error }

func (beyond) Is(target error) bool { return target == ErrBeyond }

// cost is what one subschema may cost with every reference below it followed.
type cost struct {
	perDepth []int // subschemas by the depth of the value they look at, from here
	total    int
	text     int
}

// expand walks the graph of subschemas and references from the root and adds up
// what validation may cost. A reference that leads back to where it came from has
// no bottom, and doubling ones grow without measure: both are refused. Only a circle
// that looks at one and the same value all the way round is wrong in itself; the others
// are ErrBeyond.
func expand(root *node) (perDepth []int, text int, err error) {
	done := map[*node]*cost{}
	open := map[*node]int{} // how far below the root's value it looks, from 1
	below := 1
	var walk func(n *node) (*cost, error)
	walk = func(n *node) (*cost, error) {
		if c := done[n]; c != nil {
			return c, nil
		}
		if was := open[n]; was == below {
			return nil, broken{fmt.Errorf("%s refers to itself", at(n.path))}
		} else if was > 0 {
			return nil, beyond{fmt.Errorf("%s refers to itself", at(n.path))}
		}
		open[n] = below
		c := &cost{perDepth: []int{n.weight}, total: n.weight, text: n.text}
		for _, child := range n.inPlace {
			sub, err := walk(child)
			if err != nil {
				return nil, err
			}
			c.add(sub, 0)
		}
		for _, child := range n.below {
			below++
			sub, err := walk(child)
			below--
			if err != nil {
				return nil, err
			}
			c.add(sub, 1)
		}
		if c.total > maxExpansion {
			return nil, beyond{fmt.Errorf("%s grows to more than %d subschemas when its references are followed", at(n.path), maxExpansion)}
		}
		if len(c.perDepth) > maxConsumed {
			return nil, beyond{fmt.Errorf("%s nests deeper than %d levels when its references are followed", at(n.path), maxConsumed)}
		}
		delete(open, n)
		done[n] = c
		return c, nil
	}
	c, err := walk(root)
	if err != nil {
		return nil, 0, err
	}
	return c.perDepth, c.text, nil
}

// add counts a child whose values lie down levels below.
func (c *cost) add(sub *cost, down int) {
	for len(c.perDepth) < len(sub.perDepth)+down {
		c.perDepth = append(c.perDepth, 0)
	}
	for d, n := range sub.perDepth {
		c.perDepth[d+down] += n
	}
	c.total += sub.total
	c.text += sub.text
}

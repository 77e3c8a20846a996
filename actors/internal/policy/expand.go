package policy

import "fmt"

// cost is what one subschema may cost with every reference below it followed.
type cost struct {
	perDepth []int // subschemas by the depth of the value they look at, from here
	total    int
	text     int
}

// expand walks the graph of subschemas and references from the root and adds up
// what validation may cost. A reference that leads back to where it came from has
// no bottom, and doubling ones grow without measure: both are refused.
func expand(root *node) (perDepth []int, text int, err error) {
	done := map[*node]*cost{}
	open := map[*node]bool{}
	var walk func(n *node) (*cost, error)
	walk = func(n *node) (*cost, error) {
		if c := done[n]; c != nil {
			return c, nil
		}
		if open[n] {
			return nil, fmt.Errorf("%s refers to itself", at(n.path))
		}
		open[n] = true
		c := &cost{perDepth: []int{n.weight}, total: n.weight, text: n.text}
		for _, child := range n.inPlace {
			sub, err := walk(child)
			if err != nil {
				return nil, err
			}
			c.add(sub, 0)
		}
		for _, child := range n.below {
			sub, err := walk(child)
			if err != nil {
				return nil, err
			}
			c.add(sub, 1)
		}
		if c.total > maxExpansion {
			return nil, fmt.Errorf("%s grows to more than %d subschemas when its references are followed", at(n.path), maxExpansion)
		}
		if len(c.perDepth) > maxConsumed {
			return nil, fmt.Errorf("%s nests deeper than %d levels when its references are followed", at(n.path), maxConsumed)
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

package messages

// CatalogueDiff is what became of the tools on offer from one snapshot to another.
type CatalogueDiff struct {
	Added, Removed, Changed []Tool // each sorted by name; Changed as they are now
}

// Empty reports whether the two offer the same.
func (d CatalogueDiff) Empty() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// Since tells how the tools on offer differ from those of an earlier snapshot: in what a
// server says of them (the digest), or in what the bridge does (effect, permission).
func (c *Catalogue) Since(earlier *Catalogue) (d CatalogueDiff) {
	before, after := earlier.all, c.all
	for len(before)+len(after) > 0 {
		switch {
		case len(before) > 0 && !before[0].Listed:
			before = before[1:]
		case len(after) > 0 && !after[0].Listed:
			after = after[1:]
		case len(before) == 0 || len(after) > 0 && after[0].Name < before[0].Name:
			d.Added, after = append(d.Added, after[0]), after[1:]
		case len(after) == 0 || before[0].Name < after[0].Name:
			d.Removed, before = append(d.Removed, before[0]), before[1:]
		default:
			a, b := &before[0], &after[0]
			if a.Server != b.Server || a.RemoteName != b.RemoteName || a.Digest != b.Digest || a.Effect != b.Effect || a.Permission != b.Permission {
				d.Changed = append(d.Changed, *b)
			}
			before, after = before[1:], after[1:]
		}
	}
	return d
}

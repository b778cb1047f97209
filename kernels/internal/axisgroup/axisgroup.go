// Package axisgroup joins neighbouring axes of a shape that an op treats alike.
package axisgroup

import (
	"slices"
)

// Group is a run of adjacent axes, all chosen (to be reduced, or repeated) or all not.
type Group struct {
	N      int64
	Chosen bool
}

// Merge joins adjacent axes that are treated alike. There is always a chosen group; axes of extent 1 are dropped.
func Merge(shape, axes []int) []Group {
	var groups []Group
	chosen := false
	for a, d := range shape {
		if d == 1 {
			continue
		}
		c := slices.Contains(axes, a)
		chosen = chosen || c
		if k := len(groups); k > 0 && groups[k-1].Chosen == c {
			groups[k-1].N *= int64(d)
		} else {
			groups = append(groups, Group{int64(d), c})
		}
	}
	if !chosen {
		groups = append(groups, Group{1, true})
	}
	return groups
}

// Around returns the shape outer x r x inner seen from group k.
func Around(groups []Group, k int) (outer, r, inner int64) {
	outer, inner = 1, 1
	for i, g := range groups {
		switch {
		case i < k:
			outer *= g.N
		case i > k:
			inner *= g.N
		}
	}
	return outer, groups[k].N, inner
}

// Drop removes group k and joins its neighbours.
func Drop(groups []Group, k int) []Group {
	rest := slices.Delete(slices.Clone(groups), k, k+1)
	if k > 0 && k < len(rest) && rest[k-1].Chosen == rest[k].Chosen {
		rest[k-1].N *= rest[k].N
		rest = slices.Delete(rest, k, k+1)
	}
	return rest
}

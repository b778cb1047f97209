package kernels

import "slices"

// group is a run of adjacent axes, all chosen (to be reduced, or repeated) or
// all not.
type group struct {
	n      int64
	chosen bool
}

// merge joins adjacent axes that are treated alike. There is always a chosen
// group; axes of extent 1 are dropped.
func merge(shape, axes []int) []group {
	var groups []group
	chosen := false
	for a, d := range shape {
		if d == 1 {
			continue
		}
		c := slices.Contains(axes, a)
		chosen = chosen || c
		if k := len(groups); k > 0 && groups[k-1].chosen == c {
			groups[k-1].n *= int64(d)
		} else {
			groups = append(groups, group{int64(d), c})
		}
	}
	if !chosen {
		groups = append(groups, group{1, true})
	}
	return groups
}

// around returns the shape outer x r x inner seen from group k.
func around(groups []group, k int) (outer, r, inner int64) {
	outer, inner = 1, 1
	for i, g := range groups {
		switch {
		case i < k:
			outer *= g.n
		case i > k:
			inner *= g.n
		}
	}
	return outer, groups[k].n, inner
}

// drop removes group k and joins its neighbours.
func drop(groups []group, k int) []group {
	rest := slices.Delete(slices.Clone(groups), k, k+1)
	if k > 0 && k < len(rest) && rest[k-1].chosen == rest[k].chosen {
		rest[k-1].n *= rest[k].n
		rest = slices.Delete(rest, k, k+1)
	}
	return rest
}

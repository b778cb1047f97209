package results

import (
	"fmt"
	"slices"
	"strings"
)

// Merge adds a later run on the same GPU, of some cases and suites, to f: rows and suites that were
// run again replace those of f, and are marked with their run if it is not f's; the rest of f
// stays. If nothing of f is left, f becomes the later run, and so it does if the later run drew its cases.
func (f *File) Merge(later *File) error {
	if f.GPU != later.GPU {
		return fmt.Errorf("results: a run on %s cannot be merged into one on %s", later.GPU, f.GPU)
	}
	var run *Run
	if later.Run != f.Run {
		run = &later.Run
	}
	merged := *f
	merged.Rows = slices.DeleteFunc(slices.Clone(f.Rows), func(r Row) bool {
		return slices.ContainsFunc(later.Rows, func(n Row) bool { return n.Key == r.Key })
	})
	merged.Peers = slices.DeleteFunc(slices.Clone(f.Peers), func(p Peer) bool {
		return slices.ContainsFunc(later.Peers, func(n Peer) bool { return n.Key == p.Key })
	})
	merged.Suites = keptSuites(f.Suites, later.Suites)
	if later.Seed != 0 || len(merged.Rows)+len(merged.Peers)+len(merged.Suites) == 0 {
		*f = *later
		return nil
	}
	for _, r := range later.Rows {
		r.Run = run
		merged.Rows = append(merged.Rows, r)
	}
	for _, p := range later.Peers {
		p.Run = run
		merged.Peers = append(merged.Peers, p)
	}
	for _, s := range later.Suites {
		s.Run = run
		merged.Suites = append(merged.Suites, s)
	}
	*f = merged
	return nil
}

// keptSuites returns the suites of old that later ones do not replace: a suite replaces one of the
// same name, or all parts of it. Of a suite of several ops, those that ran again are removed.
func keptSuites(old, later []Suite) (kept []Suite) {
	type unit struct{ tool, target string }
	again := map[unit]map[int]bool{} // the parts
	parts := map[unit]int{}
	for _, s := range later {
		tool, targets, part, of := s.Of()
		for _, target := range targets {
			u := unit{tool, target}
			if again[u] == nil {
				again[u] = map[int]bool{}
			}
			again[u][part], parts[u] = true, of
		}
	}
	for _, s := range old {
		if slices.ContainsFunc(later, func(n Suite) bool { return n.Name == s.Name }) {
			continue
		}
		if len(s.Kernels) == 0 {
			kept = append(kept, s)
			continue
		}
		tool, targets, _, _ := s.Of()
		left := slices.DeleteFunc(slices.Clone(targets), func(target string) bool {
			u := unit{tool, target}
			return parts[u] > 0 && len(again[u]) == parts[u]
		})
		if len(left) == 0 {
			continue
		}
		s.Name = strings.Replace(s.Name, strings.Join(targets, "|"), strings.Join(left, "|"), 1)
		kept = append(kept, s)
	}
	return kept
}

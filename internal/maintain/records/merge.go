package records

import (
	"fmt"
	"slices"
	"strings"
)

// Merge adds a later run on the same GPU, of some cases and suites, to f: what was run again replaces that of f; the rest of f
// stays. If nothing of f is left, f becomes the later run, and so it does if the later run drew its cases.
func (f *File) Merge(later *File) error {
	if f.GPU != later.GPU || f.Set != later.Set {
		return fmt.Errorf("records: a run of %s on %s cannot be merged into one of %s on %s", later.Set, later.GPU, f.Set, f.GPU)
	}
	kept := keptSuites(slices.DeleteFunc(slices.Clone(f.Records), func(r Record) bool {
		return slices.ContainsFunc(later.Records, r.replacedBy)
	}), later.Of(Suite))
	if later.Head().Seed != 0 || len(kept) == 0 {
		*f = *later
		return nil
	}
	f.Runs = slices.Clone(f.Runs)
	for _, r := range later.Records {
		run := later.RunOf(r)
		if r.Run = slices.Index(f.Runs, run); r.Run < 0 {
			r.Run = len(f.Runs)
			f.Runs = append(f.Runs, run)
		}
		kept = append(kept, r)
	}
	f.Records = kept
	return nil
}

// replacedBy reports whether a later record replaces r. Both must have the same key. A suite replaces the suite of its name, a peer
// replaces a peer, and a local measurement replaces every local measurement.
func (r Record) replacedBy(later Record) bool {
	if r.Key != later.Key {
		return false
	}
	if r.Kind == Suite || later.Kind == Suite {
		return r.Kind == later.Kind && r.By == later.By
	}
	return (r.Kind == Peer) == (later.Kind == Peer)
}

// keptSuites returns records without the suites of which later ones ran all parts again. Of a suite of several ops, those that ran
// again are removed.
func keptSuites(old, later []Record) (kept []Record) {
	again := func(tool, target string) bool {
		done, parts := map[int]bool{}, -1
		for _, s := range later {
			if s.By == tool && slices.Contains(s.Targets(), target) {
				part, of := s.Part()
				done[part], parts = true, of
			}
		}
		return len(done) == parts
	}
	for _, r := range old {
		if r.Kind == Suite && len(r.Kernels) > 0 {
			left := slices.DeleteFunc(r.Targets(), func(target string) bool { return again(r.By, target) })
			if len(left) == 0 {
				continue
			}
			r.Op = strings.Join(left, "|")
		}
		kept = append(kept, r)
	}
	return kept
}

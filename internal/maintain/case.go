// Package maintain keeps the records of Stheno's repository: the cases that are measured on GPUs, the runs that the kernels of the
// tree need, what is missing of both, and the pages that show the records. Package records has the records themselves.
package maintain

import (
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
)

// A Case is measured on a GPU.
type Case interface {
	Key() records.Key
	// Describe returns, as a value for JSON, what another library needs to measure the same.
	Describe() any
	// Measure measures the case and checks its result, which is an error if it is wrong. The first record is that of the case.
	Measure(b Bench) ([]records.Record, error)
}

// Bench is where and how cases are measured.
type Bench struct {
	Device cudaops.Device
	Block  Block // random numbers for the operands
	Runs   int   // timed runs of a case, fewer of those that take long
}

// Cases returns the cases of a set in the order of the tables, without the random cases. With versions, those of numbered versions of ops are
// last.
func Cases(set string, versions bool) (cases []Case) {
	switch set {
	case records.Ops:
		var numbered []Case
		for _, s := range opspec.All() {
			for _, c := range s.Cases {
				for _, dt := range c.Timed {
					if o := (Op{Spec: s, Case: c, Dtype: dt}); c.Version == 0 {
						cases = append(cases, o)
					} else if versions {
						numbered = append(numbered, o)
					}
				}
			}
		}
		return append(cases, numbered...)
	case records.Graphs:
		for _, c := range graphspec.All() {
			cases = append(cases, Program{Step: graphspec.Step{Case: c}})
		}
	case records.Steps:
		host := &trained{}
		for _, s := range graphspec.Steps() {
			cases = append(cases, Program{s, host})
		}
	case records.Products:
		return append(products(), specials()...)
	}
	return cases
}

// Keys returns the keys of the cases of a set, without numbered versions.
func Keys(set string) (keys []records.Key) {
	for _, c := range Cases(set, false) {
		keys = append(keys, c.Key())
	}
	return keys
}

// timed records the times of a case's runs, which it sorts; there may be none.
func timed(c Case, runs []time.Duration, digests records.Digests, values map[string]float64) records.Record {
	r := records.Record{Kind: records.Time, Key: c.Key(), Kernels: digests, Values: values}
	slices.Sort(runs)
	if n := len(runs); n > 0 {
		r.Us, values["min"], values["max"] = Micros(runs[n/2]), Micros(runs[0]), Micros(runs[n-1])
	}
	values["runs"] = float64(len(runs))
	return r
}

// timePlan times a plan of a case within a budget. It returns the record, with the given least traffic, and the output of the last run.
func timePlan(c Case, b Bench, plan *kernels.Plan, inputs [][]byte, budget time.Duration, bytes int64) (r records.Record, out []byte, err error) {
	digests, err := plan.Digests()
	if err != nil {
		return r, nil, err
	}
	timing, err := bench.TimeWithin(b.Device.Ordinal, plan, inputs, b.Runs, budget)
	if err != nil {
		return r, nil, err
	}
	return timed(c, timing.Runs, digests, map[string]float64{"bytes": float64(bytes), "flops": float64(plan.Flops)}), timing.Out, nil
}

// Micros returns a time in microseconds.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

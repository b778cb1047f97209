package maintain

import (
	"fmt"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
)

// Checked is an op whose cases are compared with their references, in all types.
type Checked struct{ Spec opspec.Spec }

// Checks returns every op that has a plan.
func Checks() (cases []Case) {
	for _, s := range opspec.All() {
		if c := (Checked{s}); len(c.cases()) > 0 {
			cases = append(cases, c)
		}
	}
	return cases
}

// Key implements [Case].
func (c Checked) Key() records.Key { return records.Key{Op: c.Spec.Name} }

// Describe implements [Case]: other libraries have no part in it.
func (c Checked) Describe() any { return nil }

// cases returns the cases that are compared.
func (c Checked) cases() (list []Op) {
	const most = 1 << 20 // elements
	for _, one := range c.Spec.Cases {
		if !one.Tested() || one.Composed || one.Elements() > most {
			continue
		}
		for _, dt := range one.Types {
			list = append(list, Op{Spec: c.Spec, Case: one, Dtype: dt})
		}
	}
	return list
}

// Measure implements [Case]: nothing is timed. An element that is off by more than the op allows is an error.
func (c Checked) Measure(b Bench) ([]records.Record, error) {
	list := c.cases()
	for _, o := range list {
		run := func(p *kernels.Plan, inputs [][]byte, out []byte) error {
			return bench.Run(b.Device.Ordinal, p, inputs, out)
		}
		if err := o.compare(b.Device.Device, run); err != nil {
			return nil, fmt.Errorf("%s in %v: %w", o.Case.Name, o.Dtype, err)
		}
	}
	return []records.Record{{Kind: records.Check, Key: c.Key(), Note: fmt.Sprintf("%d cases", len(list)), Values: map[string]float64{}}}, nil
}

// compare runs the plan of the case for a device and compares the output with the reference.
func (o Op) compare(dev kernels.Device, run func(p *kernels.Plan, inputs [][]byte, out []byte) error) error {
	plan, t, err := o.Case.Plan(o.Dtype, dev)
	if err != nil {
		return err
	}
	in := opspec.Normal.Draw(rand.New(rand.NewPCG(1, 0)), o.Case, o.Dtype)
	inputs, out := make([][]byte, len(in)), make([]byte, plan.Out)
	for i, x := range in {
		inputs[i] = opspec.Encode(o.Dtype, x)
	}
	if err := run(plan, inputs, out); err != nil {
		return err
	}
	want, magnitude := o.Case.Reference(in...)
	return opspec.CloseTo(t.Dtype, out, want, magnitude, o.Spec.ToleranceOf(o.Dtype))
}

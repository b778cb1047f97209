package maintain

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/tensor"
)

// Op is a case of an op in one element type.
type Op struct {
	Spec  opspec.Spec
	Case  opspec.Case
	Dtype kernels.Dtype
	// Random is set for a random case: there are many, so each gets little time, and the results of those that move more than 256 MB
	// are not checked.
	Random bool
}

// Random returns random cases of ops as cases.
func Random(drawn []opspec.Drawn) (cases []Case) {
	for _, d := range drawn {
		cases = append(cases, Op{d.Spec, d.Case, d.Type, true})
	}
	return cases
}

// Text returns the histogram of the bytes of a text, repeated to the length of the text that a
// well-known listing counts.
func Text(path string) (o Op, err error) {
	const size = 5_800_000
	text, err := os.ReadFile(path)
	if err != nil {
		return o, err
	}
	if len(text) == 0 {
		return o, fmt.Errorf("%s is empty, want a text to count the bytes of", path)
	}
	spec, _ := opspec.Find("Histogram")
	like := slices.IndexFunc(spec.Cases, func(c opspec.Case) bool { return c.Name == "2^30 bytes" })
	if like < 0 {
		return o, errors.New("there is no case Histogram/2^30 bytes/u8 to make another one of")
	}
	o = Op{Spec: spec, Case: spec.Cases[like], Dtype: kernels.Uint8}
	o.Case.Name, o.Case.Data, o.Case.Text = "5.8 MB of text", "text", path
	o.Case.Shapes = []tensor.Shape{{size}}
	o.Case.Fill = func(operand []byte) {
		for i := 0; i < len(operand); i += copy(operand[i:], text) {
		}
	}
	return o, nil
}

// Key implements [Case].
func (o Op) Key() records.Key {
	return records.Key{Op: o.Spec.Name, Case: o.Case.Name, Dtype: o.Dtype.String()}
}

// Describe implements [Case].
func (o Op) Describe() any { return o.Spec.Describe(o.Case, o.Dtype) }

// Measure implements [Case]: it times the op's plan and compares the output of the last timed run with that of
// the host.
func (o Op) Measure(b Bench) ([]records.Record, error) {
	budget, checked := 3*time.Second, int64(math.MaxInt64)
	if o.Random {
		budget, checked = 300*time.Millisecond, 256<<20
	}
	plan, _, err := o.Case.Plan(o.Dtype, b.Device.Device)
	if err != nil {
		return nil, err
	}
	inputs := o.inputs(plan, b.Block)
	r, out, err := timePlan(o, b, plan, inputs, budget, o.Case.Bytes(plan, o.Dtype, b.Device.Device))
	if err != nil {
		return nil, err
	}
	if o.Case.Version > 0 {
		r.Values["version"] = float64(o.Case.Version)
	}
	if plan.Bytes() > checked {
		r.Note = "no"
		return []records.Record{r}, nil
	}
	err = o.checkInto(&r, plan, inputs, out)
	return []records.Record{r}, err
}

// checkInto records how an output was checked. A wrong output is an error.
func (o Op) checkInto(r *records.Record, plan *kernels.Plan, inputs [][]byte, out []byte) error {
	what, worst, err := o.check(plan, inputs, out, affordable)
	if r.Note, r.Values["error"] = what, worst; err == nil && !(worst <= 1) {
		err = fmt.Errorf("wrong result: an element of %s is off by %.3g times the error that the op allows", what, worst)
	}
	return err
}

// inputs returns the operands of a plan of the case.
func (o Op) inputs(plan *kernels.Plan, block Block) [][]byte {
	inputs := make([][]byte, len(plan.Inputs))
	for i, n := range plan.Inputs {
		if o.Case.Fill != nil {
			inputs[i] = make([]byte, n)
			o.Case.Fill(inputs[i])
			continue
		}
		inputs[i] = block.Fill(o.Dtype, n, i)
	}
	return inputs
}

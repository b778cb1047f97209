package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Technique is what another module defines to have an op of its own, with
// kernels of its own: see docs/write-your-own-kernel.md. Parameters are fields
// of the implementing type. [Apply] makes nodes of it, which have all that
// Stheno's own ops have: both of Gorgonia's ways of differentiation, Do on the
// host, the kernels on a GPU.
type Technique interface {
	// String names the technique with its parameters, as in "Scale[0.5]". Two that
	// give different results on the same inputs must have different names.
	String() string
	// Infer gives the output's shape for the inputs' shapes, or says what is wrong
	// with them. It says so too where their number is wrong.
	Infer(in []tensor.Shape) (tensor.Shape, error)
	// Plan gives the launches on dev, for inputs of type dt and of shapes that
	// Infer took.
	Plan(dev kernels.Device, dt kernels.Dtype, in []tensor.Shape) (*kernels.Plan, error)
	// Adjoints gives, for each input, what computes the derivative of the loss by
	// that input. None at all says that there is no gradient.
	Adjoints(in []tensor.Shape) []Adjoint
}

// Adjoint computes the derivative of a loss by one input: a technique applied to
// operands, each one the number of an input, or [Gradient]. A nil Technique stands
// for the single operand itself.
type Adjoint struct {
	Technique Technique
	Operands  []int
}

// Gradient as an operand of an [Adjoint] is the derivative of the loss by the
// output.
const Gradient = gradient

// Apply applies a technique to nodes of one graph and one type, float32 or
// float64. The error names the technique, the input, what it got and what it
// takes.
func Apply(t Technique, inputs ...*gorgonia.Node) (*gorgonia.Node, error) {
	if t == nil {
		return nil, errors.New("ops: Apply: got no technique")
	}
	if len(inputs) == 0 {
		return nil, fmt.Errorf("ops: %v: got no inputs, want at least one", t)
	}
	return apply(foreign{t}, inputs...)
}

// foreign is another module's technique as one of ours.
type foreign struct{ Technique }

func (t foreign) infer(in []tensor.Shape) (tensor.Shape, error) { return t.Infer(in) }

func (t foreign) plan(dev kernels.Device, dt kernels.Dtype, in []tensor.Shape) (*kernels.Plan, error) {
	return t.Plan(dev, dt, in)
}

func (t foreign) adjoints(in []tensor.Shape) []adjoint {
	list := make([]adjoint, len(in))
	given := t.Adjoints(in)
	for i := range list {
		switch {
		case len(given) == 0:
			list[i] = failing(fmt.Errorf("%v has no gradient", t))
		case len(given) != len(in):
			list[i] = failing(fmt.Errorf("%v gives adjoints for %d inputs, want %d", t, len(given), len(in)))
		case len(given[i].Operands) == 0 || slices.Max(given[i].Operands) >= len(in) || slices.Min(given[i].Operands) < Gradient:
			list[i] = failing(fmt.Errorf("adjoint %d of %v has the operands %v, want numbers of its %d inputs or ops.Gradient", i, t, given[i].Operands, len(in)))
		case given[i].Technique == nil:
			list[i] = adjoint{nil, given[i].Operands}
		default:
			list[i] = adjoint{foreign{given[i].Technique}, given[i].Operands}
		}
	}
	return list
}

// failing is an adjoint that cannot be computed: applying it gives the error.
func failing(err error) adjoint { return adjoint{missing{err}, []int{gradient}} }

type missing struct{ err error }

func (missing) String() string { return "gradient" }

func (m missing) infer([]tensor.Shape) (tensor.Shape, error) { return nil, m.err }

func (m missing) plan(kernels.Device, kernels.Dtype, []tensor.Shape) (*kernels.Plan, error) {
	return nil, m.err
}

func (missing) adjoints([]tensor.Shape) []adjoint { return nil }

package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
)

// Dropout sets each element of x to 0 with a probability, 0 to 1, and divides the others by the probability to keep them:
//
//	out[i] = x[i] / (1 - probability), or 0
//
// The gradient drops the same elements. In runs that evaluate, out is x: see [WhenTraining]. Each Dropout draws numbers of its
// own; a VM of package cudaops draws others in each run.
func Dropout(x *gorgonia.Node, probability float64) (*gorgonia.Node, error) {
	if !(probability >= 0 && probability <= 1) {
		return nil, fmt.Errorf("ops: Dropout: got probability %v, want 0 to 1", probability)
	}
	return Apply(dropout{probability, newDraws(x), false}, x)
}

type dropout struct {
	probability float64
	from        *draws
	gradient    bool
}

func (d dropout) String() string { return fmt.Sprintf("Dropout[%v]", d.probability) }

func (d dropout) mode() *trainingMode { return &d.from.trainingMode }
func (d dropout) source() *draws      { return d.from }
func (d dropout) repeats() bool       { return d.gradient }

func (d dropout) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 1); err != nil {
		return Type{}, err
	}
	return in[0], nil
}

func (d dropout) Plan(kernels.Device, ...Type) (*kernels.Plan, error) { return nil, errDraws }

func (d dropout) draw(dev kernels.Device, stream int, in ...Type) (*kernels.Plan, error) {
	t := in[0]
	b := expr.NewBuilder(t.Dtype, t.Dtype)
	v := b.Operand(0)
	if !d.from.evaluates.Load() {
		v = DropoutOf(b, t.Dtype, d.probability)
	}
	f, err := b.Func(v)
	if err != nil {
		return nil, err
	}
	random := codegen.Dense(t.Shape)
	random.Elements, random.Stream = codegen.RandomState, codegen.Stream{Number: stream}
	return codegen.Map(dev, f, t.Shape, codegen.Dense(t.Shape), random)
}

// DropoutOf returns a Dropout of operand 0, where operand 1 is a random number below 1.
func DropoutOf(b *expr.Builder, t kernels.Dtype, probability float64) expr.Value {
	x, u := b.Operand(0), b.Operand(1)
	keep := b.Constant(t, 1-probability)
	return b.Apply(expr.Select, b.Apply(expr.Lt, u, keep), b.Apply(expr.Div, x, keep), b.Constant(t, 0))
}

// Dropout returns the probability of a Dropout or of its gradient; ok is false for any other op.
func (o *Op) Dropout() (probability float64, ok bool) {
	d, ok := o.primitive.(dropout)
	return d.probability, ok
}

func (d dropout) Adjoints(b *Backward) []Term {
	d.gradient = true
	return []Term{b.Apply(d, b.Grad())}
}

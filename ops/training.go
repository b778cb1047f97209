package ops

import (
	"fmt"
	"sync/atomic"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
)

// WhenTraining returns train in runs that train and evaluate in runs that evaluate, two nodes of one type and shape. A VM of package cudaops
// computes only the one that it returns: see cudaops.EvalMode. Gorgonia's machines compute both; gorgonia.EvalMode selects the second.
func WhenTraining(train, evaluate *gorgonia.Node) (*gorgonia.Node, error) {
	return Apply(whenTraining{new(trainingMode)}, train, evaluate)
}

// trainingMode is the mode of a WhenTraining or Dropout and of its gradients.
type trainingMode struct{ evaluates atomic.Bool }

// moded is a primitive with a training mode.
type moded interface{ mode() *trainingMode }

// modedOp is the op of a moded primitive. It implements gorgonia.TrainModeOp.
type modedOp struct{ *Op }

// forGraph returns the form of the op for a graph.
func (o *Op) forGraph() gorgonia.Op {
	if _, ok := o.primitive.(moded); ok {
		return modedOp{o}
	}
	return forMachines(o)
}

// SetTraining sets the mode, which is training at first.
func (o modedOp) SetTraining(training bool) error {
	o.primitive.(moded).mode().evaluates.Store(!training)
	return nil
}

// Training reports the mode.
func (o modedOp) Training() bool { return !o.primitive.(moded).mode().evaluates.Load() }

type whenTraining struct{ of *trainingMode }

// WhenTraining reports whether the op is a [WhenTraining], or the gradient of one.
func (o modedOp) WhenTraining() bool {
	_, ok := o.primitive.(whenTraining)
	return ok
}

func (w whenTraining) mode() *trainingMode { return w.of }

func (w whenTraining) String() string { return "WhenTraining" }

func (w whenTraining) Infer(in ...Type) (Type, error) {
	if len(in) != 2 {
		return Type{}, fmt.Errorf("got %d inputs, want 2", len(in))
	}
	if !in[1].equal(in[0]) {
		return Type{}, fmt.Errorf("input 1: got %v, want %v as of input 0", in[1], in[0])
	}
	return in[0], nil
}

func (w whenTraining) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	b, k := expr.NewBuilder(in[0].Dtype, in[1].Dtype), 0
	if w.of.evaluates.Load() {
		k = 1
	}
	f, err := b.Func(b.Operand(k))
	if err != nil {
		return nil, err
	}
	shape := in[0].Shape
	return codegen.Map(dev, f, shape, codegen.Dense(shape), codegen.Dense(shape))
}

func (w whenTraining) Adjoints(b *Backward) []Term {
	g := b.Grad()
	return []Term{b.Apply(w, g, zeros(b, g)), b.Apply(w, zeros(b, g), g)}
}

package gorgonia

import (
	"cmp"
	"reflect"
	"slices"
	"sync"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The ops here differ from run to run: ops that train or evaluate, and random numbers.

// DropoutOf is a Dropout, or its derivative, which has the same Op.
type DropoutOf struct {
	Op          uintptr // identifies it
	Probability float64 // of dropping an element
	Training    bool
	Derivative  bool
}

// Dropout describes a Dropout or its derivative. ok is false for any other op.
func Dropout(op gorgonia.Op) (d DropoutOf, ok bool) {
	f, derivative := fieldsOfEither(op, "dropoutOp", "dropoutDiffOp")
	d = DropoutOf{Probability: f.float("probability"), Training: f.bool("isTraining"), Derivative: derivative}
	if f.ok = f.ok && f.v.CanAddr(); f.ok {
		d.Op = f.v.UnsafeAddr()
	}
	return d, f.ok
}

// BatchNormOf is a BatchNorm, or its derivative, which has the same Op.
type BatchNormOf struct {
	Op                *gorgonia.BatchNormOp
	Momentum, Epsilon float64
	Training          bool
	Derivative        bool
}

// BatchNorm describes a BatchNorm or its derivative. ok is false for any other op.
func BatchNorm(op gorgonia.Op) (b BatchNormOf, ok bool) {
	f, derivative := fieldsOfEither(op, "BatchNormOp", "batchnormDiffOp")
	b = BatchNormOf{Momentum: f.float("momentum"), Epsilon: f.float("epsilon"), Training: f.bool("training"), Derivative: derivative}
	b.Op, ok = op.(*gorgonia.BatchNormOp)
	if derivative {
		b.Op, ok = reflect.Indirect(reflect.ValueOf(op)).FieldByName("BatchNormOp").Interface().(*gorgonia.BatchNormOp)
	}
	return b, ok && f.ok
}

// BatchNorms returns the BatchNorms of a graph in the order in which their nodes were made.
func BatchNorms(g *gorgonia.ExprGraph) (list []*gorgonia.BatchNormOp) {
	nodes := slices.Clone(g.AllNodes())
	slices.SortFunc(nodes, func(a, b *gorgonia.Node) int { return cmp.Compare(a.ID(), b.ID()) })
	for _, n := range nodes {
		if op, ok := n.Op().(*gorgonia.BatchNormOp); ok && !slices.Contains(list, op) {
			list = append(list, op)
		}
	}
	return list
}

// GroupNorm returns the groups of a GroupNorm or of its derivative. ok is false for any
// other op.
func GroupNorm(op gorgonia.Op) (groups int, epsilon float64, derivative, ok bool) {
	f, derivative := fieldsOfEither(op, "GroupNormOp", "groupNormDiffOp")
	groups, epsilon = f.int("numGroups"), f.float("epsilon")
	return groups, epsilon, derivative, f.ok
}

// Training reports whether an op trains, if its value depends on that.
func Training(op gorgonia.Op) (training, ok bool) {
	if own, ok := op.(interface{ Training() bool }); ok {
		return own.Training(), true
	}
	if d, ok := Dropout(op); ok {
		return d.Training, true
	}
	b, ok := BatchNorm(op)
	return b.Training, ok
}

// randomConstructors make the ops of random tensors, by the names that Random returns.
var randomConstructors = map[string]func(g *gorgonia.ExprGraph, dt tensor.Dtype, a, b float64, shape ...int) *gorgonia.Node{
	"uniform": gorgonia.UniformRandomNode, "gaussian": gorgonia.GaussianRandomNode, "binomial": gorgonia.BinomialRandomNode,
}

// randomKinds maps the numbers that random tensors' ops hold to names.
var randomKinds = sync.OnceValues(func() (map[uint64]string, error) {
	kinds := map[uint64]string{}
	for name, node := range randomConstructors {
		number, ok := randomKind(node(gorgonia.NewGraph(), tensor.Float64, 1, 2, 3).Op())
		if old := kinds[number]; !ok || old != "" {
			return nil, elsewhere(name, old)
		}
		kinds[number] = name
	}
	return kinds, nil
})

func randomKind(op gorgonia.Op) (number uint64, ok bool) {
	f := fieldsOf(op, "randomOp")
	number = read(f, "which", reflect.Uint8, reflect.Value.Uint)
	return number, f.ok
}

// Random returns the name of the distribution of a random tensor, and its parameters: uniform with
// the bounds, gaussian with mean and standard deviation, binomial with trials and probability. ok
// is false for any other op.
func Random(op gorgonia.Op) (name string, a, b float64, ok bool) {
	number, ok := randomKind(op)
	if !ok {
		return "", 0, 0, false
	}
	kinds, err := randomKinds()
	if err != nil {
		return "", 0, 0, false
	}
	f := fieldsOf(op, "randomOp")
	name, a, b = kinds[number], f.float("a"), f.float("b")
	return name, a, b, name != "" && f.ok
}

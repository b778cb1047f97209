package ops_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// indexedCase is an op of numbers and of indices, with a reference by plain loops.
type indexedCase struct {
	x         *tensor.Dense // float64, or of another type without gradients
	indices   *tensor.Dense // nil for an op without
	build     func(x, indices *G.Node) (*G.Node, error)
	reference func(x []float64) []float64
}

// randomOf returns random numbers of float64.
func randomOf(r *rand.Rand, shape ...int) *tensor.Dense {
	v := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(shape...))
	for i := range v.Float64s() {
		v.Float64s()[i] = r.NormFloat64()
	}
	return v
}

// indicesOf returns integers of a random type as a tensor.
func indicesOf(r *rand.Rand, list []int, shape ...int) *tensor.Dense {
	switch r.IntN(4) {
	case 0:
		if slices.Min(list) >= 0 && slices.Max(list) < 256 {
			return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(converted[uint8](list)))
		}
	case 1:
		return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(converted[int32](list)))
	case 2:
		return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(converted[int64](list)))
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(slices.Clone(list)))
}

func converted[T uint8 | int32 | int64 | float64](list []int) (to []T) {
	for _, v := range list {
		to = append(to, T(v))
	}
	return to
}

// drawn returns n random indices below a limit.
func drawnIndices(r *rand.Rand, n, limit int) (list []int) {
	for range n {
		list = append(list, r.IntN(limit))
	}
	return list
}

// numbers returns the elements of a value of any type.
func numbers(v G.Value) []float64 {
	switch d := v.Data().(type) {
	case []float64:
		return slices.Clone(d)
	case float64:
		return []float64{d}
	case []int:
		return converted[float64](d)
	case int:
		return []float64{float64(d)}
	case []int64:
		var list []float64
		for _, x := range d {
			list = append(list, float64(x))
		}
		return list
	case int64:
		return []float64{float64(d)}
	}
	return nil
}

// check compares values, and gradients of the sum of weighted outputs with differences of the reference, on all machines.
func (c indexedCase) check(t testing.TB, r *rand.Rand) {
	t.Helper()
	withoutTag(t)
	node := testutil.Get[*G.Node](t)
	want := c.reference(numbers(c.x))
	weights := randomOf(r, max(len(want), 1))
	smooth := c.x.Dtype() == tensor.Float64
	for _, machine := range []string{"tape", "lisp", "stheno"} {
		g := G.NewGraph()
		x := G.NewTensor(g, c.x.Dtype(), c.x.Dims(), G.WithShape(c.x.Shape()...), G.WithName("x"), G.WithValue(c.x.Clone().(*tensor.Dense)))
		var indices *G.Node
		if c.indices != nil {
			indices = G.NewTensor(g, c.indices.Dtype(), c.indices.Dims(), G.WithShape(c.indices.Shape()...), G.WithName("indices"), G.WithValue(c.indices.Clone().(*tensor.Dense)))
		}
		out := node(c.build(x, indices))
		differentiable := smooth && out.Dtype() == tensor.Float64
		if differentiable {
			w := G.NewVector(g, tensor.Float64, G.WithShape(len(want)), G.WithName("weights"), G.WithValue(weights))
			loss := node(ops.Sum(node(ops.Map("a*b", node(ops.Reshape(out, len(want))), w))))
			if machine != "lisp" {
				testutil.Get[G.Nodes](t)(G.Grad(loss, x))
			}
		}
		switch machine {
		case "tape":
			vm := G.NewTapeMachine(g)
			testutil.Do(t, vm.RunAll())
			vm.Close()
		case "lisp":
			if !differentiable {
				continue
			}
			vm := G.NewLispMachine(g)
			testutil.Do(t, vm.RunAll())
			vm.Close()
		default:
			vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g, cudaops.OnAny(), cudaops.Strict(), cudaops.Keep(out)))
			testutil.Do(t, vm.RunAll())
			testutil.Do(t, vm.Close())
		}
		closeTo := func(what string, got, want []float64, tolerance float64) {
			t.Helper()
			if len(got) != len(want) {
				t.Fatalf("%s: %s has %d elements, want %d", machine, what, len(got), len(want))
			}
			for i := range want {
				if same := got[i] == want[i] || math.IsNaN(got[i]) && math.IsNaN(want[i]); !same && !(math.Abs(got[i]-want[i]) <= tolerance*(1+math.Abs(want[i]))) {
					t.Fatalf("%s, x of %v, indices %v: %s, element %d: got %v, want %v", machine, c.x.Shape(), c.indices, what, i, got[i], want[i])
				}
			}
		}
		closeTo("out", numbers(out.Value()), want, 1e-11)
		if !differentiable || math.IsNaN(want[0]) {
			continue
		}
		at, gradient := numbers(c.x), make([]float64, c.x.Size())
		sum := func() (s float64) {
			for i, v := range c.reference(at) {
				s += v * weights.Float64s()[i]
			}
			return s
		}
		for i, own := range at {
			const h = 1e-5
			at[i] = own + h
			above := sum()
			at[i] = own - h
			below := sum()
			at[i], gradient[i] = own, (above-below)/(2*h)
		}
		closeTo("the gradient", numbers(testutil.Get[G.Value](t)(x.Grad())), gradient, 1e-5)
	}
}

// TestCrossEntropy: classes along axis 1, ignored labels, smoothing.
func TestCrossEntropy(t *testing.T) {
	r := testutil.Random(t)
	for range 60 {
		shape := tensor.Shape{1 + r.IntN(5), 1 + r.IntN(6), 1 + r.IntN(4)}[:1+r.IntN(3)]
		classes, inner, rows := shape[0], 1, 1
		if len(shape) > 1 {
			classes, rows = shape[1], shape[0]
		}
		if len(shape) > 2 {
			inner = shape[2]
		}
		labels := drawnIndices(r, rows*inner, classes)
		ignored := -100
		var opts []ops.CrossEntropyOption
		if r.IntN(2) == 0 {
			ignored = []int{-1, 0, 77}[r.IntN(3)]
			opts = append(opts, ops.IgnoreLabel(ignored))
		}
		for i := range labels {
			if r.IntN(4) == 0 {
				labels[i] = ignored
			}
		}
		smoothing := 0.0
		if r.IntN(2) == 0 {
			smoothing = r.Float64()
			opts = append(opts, ops.LabelSmoothing(smoothing))
		}
		perRow := r.IntN(3) == 0
		if perRow {
			opts = append(opts, ops.PerRow())
		}
		of := tensor.Shape{rows, inner}
		if len(shape) < 3 {
			of = of[:len(shape)-1]
		}
		indices := indicesOf(r, labels, of...)
		if len(of) == 0 {
			indices = tensor.New(tensor.FromScalar(labels[0]))
		}
		indexedCase{randomOf(r, shape...), indices, func(x, indices *G.Node) (*G.Node, error) { return ops.CrossEntropy(x, indices, opts...) },
			func(x []float64) []float64 {
				total, n, each := 0.0, 0.0, make([]float64, len(labels))
				for i, label := range labels {
					if label == ignored {
						continue
					}
					sum, mean := 0.0, 0.0
					at := func(c int) float64 { return x[(i/inner*classes+c)*inner+i%inner] }
					for c := range classes {
						sum += math.Exp(at(c))
						mean += at(c) / float64(classes)
					}
					each[i] = math.Log(sum) - (1-smoothing)*at(label) - smoothing*mean
					total += each[i]
					n++
				}
				if perRow {
					return each
				}
				return []float64{total / n}
			}}.check(t, r)
	}
}

// TestProdOfIntegers: products are of int64 and wrap.
func TestProdOfIntegers(t *testing.T) {
	r := testutil.Random(t)
	for range 20 {
		rows, n := 1+r.IntN(4), 1+r.IntN(30)
		list := drawnIndices(r, rows*n, 256)
		indexedCase{indicesOf(r, list, rows, n), nil, func(x, _ *G.Node) (*G.Node, error) { return ops.Prod(x, -1) }, func([]float64) (out []float64) {
			for i := range rows {
				product := int64(1)
				for _, v := range list[i*n : (i+1)*n] {
					product *= int64(v)
				}
				out = append(out, float64(product))
			}
			return out
		}}.check(t, r)
	}
}

// TestCrossEntropyErrors: shapes that do not fit, and a label that is no class.
func TestCrossEntropyErrors(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(2, 3), G.WithInit(G.Ones()))
	labels := G.NewVector(g, tensor.Int32, G.WithName("labels"), G.WithShape(2))
	for want, build := range map[string]func() (*G.Node, error){
		"got labels int32 (2) for logits float32 (3, 2), want integers of shape (3)": func() (*G.Node, error) {
			return ops.CrossEntropy(G.NewMatrix(g, tensor.Float32, G.WithShape(3, 2)), labels)
		},
		"got labels float32 (2, 3)":          func() (*G.Node, error) { return ops.CrossEntropy(x, x) },
		"got label smoothing 2, want 0 to 1": func() (*G.Node, error) { return ops.CrossEntropy(x, labels, ops.LabelSmoothing(2)) },
		"got a nil option":                   func() (*G.Node, error) { return ops.CrossEntropy(x, labels, nil) },
		"got a nil node":                     func() (*G.Node, error) { return ops.CrossEntropy(nil, labels) },
		"got int32, want float32 or float64": func() (*G.Node, error) {
			return ops.CrossEntropy(G.NewMatrix(g, tensor.Int32, G.WithShape(2, 3)), labels)
		},
		"got a scalar of logits, want classes along": func() (*G.Node, error) { return ops.CrossEntropy(G.NewScalar(g, tensor.Float32), labels) },
	} {
		if _, err := build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	g = G.NewGraph()
	x = G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(2, 3), G.WithInit(G.Ones()))
	labels = G.NewVector(g, tensor.Int32, G.WithName("labels"), G.WithShape(2))
	loss := testutil.Get[*G.Node](t)(ops.CrossEntropy(x, labels))
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g, cudaops.OnAny(), cudaops.Outputs(loss)))
	defer vm.Close()
	for _, label := range []int32{2, 3, -1, -100} {
		testutil.Do(t, G.Let(labels, tensor.New(tensor.WithBacking([]int32{0, label}))))
		if err := vm.RunAll(); (err != nil) != (label == 3 || label == -1) || err != nil && !strings.Contains(err.Error(), "at 1, want 0 to 2") {
			t.Errorf("label %d gives the error %v", label, err)
		}
	}
}

// Extremes take integers as well as floating-point numbers: the error of bool says so.
func TestExtremesOfBool(t *testing.T) {
	x := G.NewVector(G.NewGraph(), tensor.Bool, G.WithShape(3))
	for name, op := range map[string]func() (*G.Node, error){
		"Max": func() (*G.Node, error) { return ops.Max(x) }, "Min": func() (*G.Node, error) { return ops.Min(x, 0) },
		"ArgMax": func() (*G.Node, error) { return ops.ArgMax(x, 0) }, "ArgMin": func() (*G.Node, error) { return ops.ArgMin(x, 0) },
	} {
		if _, err := op(); err == nil || !strings.Contains(err.Error(), name) || !strings.HasSuffix(err.Error(), "got bool, want numbers") {
			t.Errorf("%s: got error %v, want one that names the op and ends with %q", name, err, "got bool, want numbers")
		}
	}
}

// The error of a wrong index has the name of a node and its op, which says what the index means.
func TestIndexErrorsOfNamedNodes(t *testing.T) {
	for want, op := range map[string]func(x, wrong *G.Node) (*G.Node, error){
		"node token, Embedding: got index 9 at 1, want 0 to 2":                                   ops.Embedding,
		"node token, Categorical (-1: a row with a NaN, an Inf or no finite logit, k below 1, p": func(x, wrong *G.Node) (*G.Node, error) { return ops.Categorical(x, nil, nil, wrong) },
	} {
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float32, G.WithShape(3, 3), G.WithName("x"), G.WithInit(G.Ones()))
		wrong := G.NewVector(g, tensor.Int, G.WithShape(3), G.WithName("wrong"), G.WithValue(tensor.New(tensor.WithBacking([]int{1, 9, 1}))))
		if strings.Contains(want, "Categorical") {
			wrong = testutil.Get[*G.Node](t)(ops.Cast(wrong, tensor.Float32))
		}
		token := testutil.Get[*G.Node](t)(op(x, wrong))
		G.WithName("token")(token)
		vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g, cudaops.OnHost(), cudaops.Outputs(token)))
		defer vm.Close()
		if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}

// Ops that move integers are passed by where gorgonia.NewLispMachine differentiates a cost that uses the integers as indices.
func TestLispPassesIntegers(t *testing.T) {
	for name, move := range map[string]func(ids, zero *G.Node) (*G.Node, error){
		"Slice":     func(ids, _ *G.Node) (*G.Node, error) { return ops.Slice(ids) },
		"Concat":    func(ids, _ *G.Node) (*G.Node, error) { return ops.Concat(0, ids) },
		"Pad":       func(ids, _ *G.Node) (*G.Node, error) { return ops.Pad(ids, 0, 1, 0) },
		"Pick":      func(ids, _ *G.Node) (*G.Node, error) { return ops.Pick(ids, ids, 0) },
		"Embedding": func(ids, _ *G.Node) (*G.Node, error) { return ops.Embedding(ids, ids) },
		"RowsAt":    func(ids, zero *G.Node) (*G.Node, error) { return ops.RowsAt(ids, zero, 3, 0) },
		"Update":    func(ids, zero *G.Node) (*G.Node, error) { return ops.Update(ids, ids, zero, 0) },
		"Where": func(ids, _ *G.Node) (*G.Node, error) {
			return ops.Where(testutil.Get[*G.Node](t)(ops.Less(ids, ids)), ids, ids)
		},
	} {
		g := G.NewGraph()
		x := G.NewVector(g, G.Float64, G.WithShape(3), G.WithName("x"), G.WithInit(G.Ones()))
		ids := G.NewVector(g, tensor.Int64, G.WithShape(3), G.WithName("ids"), G.WithValue(tensor.New(tensor.WithBacking([]int64{2, 0, 1}))))
		zero := G.NewScalar(g, tensor.Int, G.WithName("zero"), G.WithValue(0))
		moved := testutil.Get[*G.Node](t)(move(ids, zero))
		testutil.Get[*G.Node](t)(ops.Sum(testutil.Get[*G.Node](t)(ops.Pick(x, moved, 0))))
		if err := G.NewLispMachine(g).RunAll(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		d, err := x.Grad()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, want := numbers(d), []float64{1, 1, 1}
		if name == "Pad" {
			want[0] = 2
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got the gradient %v, want %v", name, got, want)
		}
	}
}

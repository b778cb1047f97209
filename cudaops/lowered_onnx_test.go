package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/gorgonnx"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The Gemm of onnx-go is lowered, for each way to transpose and each shape of C that its Do takes, and leaves C as it is.
func TestONNXGemm(t *testing.T) {
	seed := testutil.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		m, n, k := 1+r.IntN(20), 1+r.IntN(20), 1+r.IntN(40)
		dt := []tensor.Dtype{tensor.Float32, tensor.Float64}[r.IntN(2)]
		transA, transB := r.IntN(2) == 0, r.IntN(2) == 0
		alpha, beta := float32(1), float32(1)
		if r.IntN(2) == 0 {
			alpha, beta = float32(r.NormFloat64()), []float32{0, float32(r.NormFloat64())}[r.IntN(2)]
		}
		shapes := []tensor.Shape{{m, k}, {k, n}, []tensor.Shape{{n}, {1, n}, {m, n}, {1}, {1, 1}}[r.IntN(5)]}
		if transA {
			shapes[0] = tensor.Shape{k, m}
		}
		if transB {
			shapes[1] = tensor.Shape{n, k}
		}
		name := fmt.Sprintf("seed %d: %v %v, transposed %v %v, alpha %v, beta %v", seed, dt, shapes, transA, transB, alpha, beta)
		op := gorgonnx.Gemm(alpha, beta, transA, transB)
		g := G.NewGraph()
		var in G.Nodes
		var values []G.Value
		for i, shape := range shapes {
			v := tensor.New(tensor.Of(dt), tensor.WithShape(shape...))
			for j := range v.Size() {
				setNumber(v, j, r.NormFloat64())
			}
			if i == 2 && beta == 0 {
				setNumber(v, 0, math.NaN()) // which is not read
			}
			in = append(in, G.NewTensor(g, dt, len(shape), G.WithName(fmt.Sprint("x", i)), G.WithShape(shape...), G.WithValue(v)))
			values = append(values, testutil.Get[G.Value](t)(G.CloneValue(v)))
		}
		out := testutil.Get[*G.Node](t)(G.ApplyOp(op, in...))
		vm := testutil.Get[*VM](t)(NewVM(g, OnHost(), Strict()))
		want := testutil.Get[G.Value](t)(op.Do(values...))
		for range 2 { // onnx-go's own second run adds to what the first one wrote into C
			testutil.Do(t, vm.RunAll())
			tolerance := 1e-12
			if dt == tensor.Float32 {
				tolerance = 1e-5
			}
			for j := range m * n {
				if got, want := numbersOf(out.Value())[j], numbersOf(want)[j]; !(math.Abs(got-want) <= tolerance*float64(k)*(1+math.Abs(want))) {
					t.Fatalf("%s: element %d is %v, want %v", name, j, got, want)
				}
			}
		}
		for _, node := range vm.Report().Nodes {
			if node.Where == "host" {
				t.Errorf("%s: %s runs by its Do", name, node.Name)
			}
		}
		testutil.Do(t, vm.Close())
	}
}

// What the Gemm of onnx-go does not take stays with its Do, which returns the error.
func TestONNXGemmErrors(t *testing.T) {
	g := G.NewGraph()
	in := func(name string, shape ...int) *G.Node {
		return G.NewTensor(g, tensor.Float64, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(shape...))))
	}
	testutil.Get[*G.Node](t)(G.ApplyOp(gorgonnx.Gemm(1, 1, false, false), in("a", 4, 2), in("b", 2, 3), in("c", 4, 1)))
	vm := testutil.Get[*VM](t)(NewVM(g, OnHost()))
	defer vm.Close()
	if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "broadcast not fully suported") {
		t.Errorf("got error %v, want that of Do", err)
	}
}

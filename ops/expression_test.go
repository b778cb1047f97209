package ops

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Gradients of reductions where elements are equal, and factors 0.
func TestReduceGradients(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		expression string
		identity   float64
		x          []float64
		want       string
	}{
		{"a + b*b", 0, []float64{1, 2, -3}, "[ 2   4  -6]"},
		{"max(a, b)", -inf, []float64{1, 7, 7}, "[0  1  1]"},
		{"min(a, 2*b)", inf, []float64{5, 1, 3}, "[0  2  0]"},
		{"max(a, b)", 9, []float64{1, 7, 7}, "[0  0  0]"}, // the identity is greater
		{"a * b", 1, []float64{2, 3, 4}, "[12   8   6]"},
		{"a * b", 1, []float64{2, 0, 4}, "[0  8  0]"},
		{"a * b", 1, []float64{0, 0, 4}, "[0  0  0]"},
		{"a / b", 1, []float64{2, 4, 1}, "[ -0.0625  -0.03125    -0.125]"},
	} {
		r, err := codegen.ParseReduction(c.expression)
		if err != nil {
			t.Fatal(err)
		}
		results, errs := gradients(t, reduction{r, c.identity}, 1, c.x)
		for way, name := range []string{"Grad", "LispMachine"} {
			if got := fmt.Sprint(results[way]); errs[way] != nil || got != "["+c.want+"]" {
				t.Errorf("%s of %v: %s gave %v, %v, want %s", c.expression, c.x, name, got, errs[way], c.want)
			}
		}
	}
}

// A function that does not depend on an input has the gradient 0 by it, one that
// steps too.
func TestMapGradients(t *testing.T) {
	for _, c := range []struct{ expression, want string }{
		{"a * 3", "[[3  3  3] [0  0  0]]"},
		{"sign(a) + (b > a) + ceil(b)", "[[0  0  0] [0  0  0]]"},
		{"abs(a) * b", "[[-4   0   6] [1  0  2]]"},
		{"max(a, b)", "[[0  0  0] [1  1  1]]"},
	} {
		f, err := expr.Parse(c.expression, kernels.Float64, "a", "b")
		if err != nil {
			t.Fatal(err)
		}
		results, errs := gradients(t, mapping{f: f, shape: tensor.Shape{3}}, 2, []float64{-1, 0, 2}, []float64{4, 5, 6})
		for way, name := range []string{"Grad", "LispMachine"} {
			if got := fmt.Sprint(results[way]); errs[way] != nil || got != c.want {
				t.Errorf("%s: %s gave %v, %v, want %s", c.expression, name, got, errs[way], c.want)
			}
		}
	}
}

// TestAddBroadcasts: Add of inputs of other shapes or types is the Map of their sum; of one shape and type it is a kernel.
func TestAddBroadcasts(t *testing.T) {
	g := gorgonia.NewGraph()
	in := func(dt tensor.Dtype, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithName(fmt.Sprint(dt, shape)), gorgonia.WithShape(shape...))
	}
	x := in(tensor.Float32, 4, 2, 3)
	for _, y := range []*gorgonia.Node{in(tensor.Float32, 3), in(tensor.Float32, 2, 1), in(tensor.Float32), in(tensor.Int, 3), in(tensor.Float64, 4, 2, 3)} {
		want := testutil.Get[*gorgonia.Node](t)(Map("a + b", x, y))
		if got := testutil.Get[*gorgonia.Node](t)(Add(x, y)); got != want {
			t.Errorf("Add with %v is %v, want %v", y, got, want)
		}
	}
	i := in(tensor.Int32, 2)
	if got := testutil.Get[*gorgonia.Node](t)(Add(i, i)); !got.Shape().Eq(tensor.Shape{2}) || got.Dtype() != tensor.Int32 {
		t.Errorf("the sum of int32 is %v", got)
	}
	if got := testutil.Get[*gorgonia.Node](t)(Add(x, x)); got.Op().String() != "Add" {
		t.Errorf("the sum of one shape is %v, want the kernel", got)
	}
}

// The activations that a document writes as a Map have finite gradients of large elements, too.
func TestDocumentedActivations(t *testing.T) {
	text := string(testutil.Get[[]byte](t)(os.ReadFile("../docs/from-pytorch.md")))
	found := regexp.MustCompile("ops\\.Map\\(\"([^\"]+)\", x\\)").FindAllStringSubmatch(text, -1)
	if len(found) == 0 {
		t.Fatal("the document has none")
	}
	for _, m := range found {
		x := gorgonia.NewVector(gorgonia.NewGraph(), tensor.Float32, gorgonia.WithName("x"), gorgonia.WithValue(tensor.New(tensor.WithBacking([]float32{-1e4, -100, -1, 0, 1, 100, 1e4}))))
		y := testutil.Get[*gorgonia.Node](t)(Map(m[1], x))
		d := testutil.Get[gorgonia.Nodes](t)(gorgonia.Grad(testutil.Get[*gorgonia.Node](t)(Sum(y)), x))[0]
		vm := gorgonia.NewTapeMachine(x.Graph())
		testutil.Do(t, vm.RunAll())
		for i, got := range d.Value().Data().([]float32) {
			if !(math.Abs(float64(got)) < 1e4) {
				t.Errorf("%s: element %d has the gradient %v", m[1], i, got)
			}
		}
		vm.Close()
	}
}

package suite

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/tape"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// runOn runs a graph on a machine.
func runOn(t *testing.T, m Machine, g *gorgonia.ExprGraph) {
	t.Helper()
	vm := testutil.Get[gorgonia.VM](t)(m.New(g))
	testutil.Do(t, vm.RunAll())
	t.Cleanup(func() { testutil.Do(t, vm.Close()) })
}

// withoutTag skips a test in a build with the tag cuda, where Gorgonia's machines want a device: cudaops/tape tests those.
func withoutTag(t testing.TB) {
	t.Helper()
	if gorgonia.CUDA {
		t.Skip("in a build with the tag cuda, Gorgonia's machines are its CUDA machines")
	}
}

// elements returns the elements of a node's value.
func elements(t *testing.T, v gorgonia.Value) []float64 {
	t.Helper()
	return testutil.Get[[]float64](t)(Numbers(v))
}

// Parts of the width of a transformer are right, which Gorgonia's slices are not: 256, 512 and 768 differ by a multiple of 256. So are their
// gradients.
func TestSplitOfWidth768(t *testing.T) {
	withoutTag(t)
	const rows, width = 4, 768
	r := testutil.Random(t)
	for _, m := range Machines() {
		g := gorgonia.NewGraph()
		backing := make([]float32, rows*3*width)
		for i := range backing {
			backing[i] = float32(r.NormFloat64())
		}
		x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(rows, 3*width), gorgonia.WithValue(tensor.New(tensor.WithShape(rows, 3*width), tensor.WithBacking(backing))))
		parts := testutil.Get[[]*gorgonia.Node](t)(ops.Split(x, -1, width, width, width))
		third := testutil.Get[*gorgonia.Node](t)(ops.Slice(x, nil, gorgonia.S(2*width, 3*width)))
		if third != parts[2] {
			t.Errorf("%s: equal slices are two nodes", m.Name)
		}
		values := make([]gorgonia.Value, len(parts))
		for i, p := range parts {
			gorgonia.Read(p, &values[i])
		}
		if m.Name != "LispMachine" {
			sum := testutil.Get[*gorgonia.Node](t)(ops.Map("1*a + 2*b + 3*c", parts...))
			loss := testutil.Get[*gorgonia.Node](t)(ops.Sum(sum))
			testutil.Get[gorgonia.Nodes](t)(gorgonia.Grad(loss, x))
		}
		runOn(t, m, g)
		for i := range parts {
			got := elements(t, values[i])
			for k, v := range got {
				if want := float64(backing[k/width*3*width+i*width+k%width]); v != want {
					t.Fatalf("%s: element %d of part %d is %v, want %v", m.Name, k, i, v, want)
				}
			}
		}
		if m.Name == "LispMachine" {
			continue
		}
		for k, v := range elements(t, testutil.Get[gorgonia.Value](t)(x.Grad())) {
			if want := float64(k/width%3 + 1); v != want {
				t.Fatalf("%s: the gradient by element %d is %v, want %v", m.Name, k, v, want)
			}
		}
	}
}

// Matmuls read parts of rows through their strides: of whole numbers, whose sums are exact.
func TestMatMulOfParts(t *testing.T) {
	const batch, rows, width = 3, 37, 128
	r := testutil.Random(t)
	for _, m := range Machines() {
		g := gorgonia.NewGraph()
		backing := make([]float32, batch*rows*3*width)
		for i := range backing {
			backing[i] = float32(r.IntN(9) - 4)
		}
		x := gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithName("x"), gorgonia.WithShape(batch, rows, 3*width), gorgonia.WithValue(tensor.New(tensor.WithShape(batch, rows, 3*width), tensor.WithBacking(backing))))
		parts := testutil.Get[[]*gorgonia.Node](t)(ops.Split(x, -1, width, width, width))
		weights := testutil.Get[*gorgonia.Node](t)(ops.MatMul(parts[0], parts[1], ops.TransB()))
		out := testutil.Get[*gorgonia.Node](t)(ops.MatMul(weights, parts[2]))
		runOn(t, m, g)
		at := func(z, row, column int) float64 { return float64(backing[(z*rows+row)*3*width+column]) }
		for k, got := range elements(t, out.Value()) {
			z, i, j := k/width/rows, k/width%rows, k%width
			want := 0.0
			for r := range rows {
				w := 0.0
				for c := range width {
					w += at(z, i, c) * at(z, r, width+c)
				}
				want += w * at(z, r, 2*width+j)
			}
			if got != want {
				t.Fatalf("%s: element %d is %v, want %v", m.Name, k, got, want)
			}
		}
	}
}

// Constants that differ in any element or in their type differ, though they are printed alike; equal ones are one node.
func TestConstants(t *testing.T) {
	const n = 3000
	for _, m := range Machines() {
		g := gorgonia.NewGraph()
		x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(n), gorgonia.WithValue(tensor.New(tensor.WithShape(n), tensor.Of(tensor.Float64))))
		var sums []*gorgonia.Node
		for i := range 4 {
			v := tensor.New(tensor.WithBacking(make([]float64, n)))
			v.Set(n/2, float64(i/2)) // two pairs
			c := testutil.Get[*gorgonia.Node](t)(ops.Constant(g, v))
			if i%2 == 1 {
				c = gorgonia.NewConstant(v) // merged with what is printed alike, if it is not replaced
			}
			sums = append(sums, testutil.Get[*gorgonia.Node](t)(ops.Sum(testutil.Get[*gorgonia.Node](t)(ops.Add(x, c)))))
		}
		runOn(t, m, g)
		for i, sum := range sums {
			if got := elements(t, sum.Value()); !slices.Equal(got, []float64{float64(i / 2)}) {
				t.Errorf("%s: constant %d adds up to %v, want %d", m.Name, i, got, i/2)
			}
		}
	}
	for _, value := range []any{[]int32{1, -2}, []uint8{3, 200}, []int{4, -5}, []bool{true, false}, 7.0, float32(8), int64(9)} {
		g := gorgonia.NewGraph()
		if s := reflect.ValueOf(value); s.Kind() == reflect.Slice {
			value = tensor.New(tensor.WithBacking(value))
		}
		c := testutil.Get[*gorgonia.Node](t)(ops.Constant(g, value))
		var got gorgonia.Value
		gorgonia.Read(c, &got)
		gorgonia.NewScalar(g, tensor.Float64, gorgonia.WithName("input"), gorgonia.WithValue(1.0)) // Gorgonia wants one
		for _, m := range Machines() {
			if m.Name == "LispMachine" { // makes a derivative for each value
				continue
			}
			runOn(t, m, g)
			if fmt.Sprint(got) != fmt.Sprint(gorgonia.NewConstant(value).Value()) {
				t.Errorf("%s: got %v, want %v", m.Name, got, value)
			}
		}
	}
	g := gorgonia.NewGraph()
	node := func(v any) *gorgonia.Node { return testutil.Get[*gorgonia.Node](t)(ops.Constant(g, v)) }
	if one, again := node(1.0), node(1.0); one != again || one == node(float32(1)) || node(0.0) == node(math.Copysign(0, -1)) {
		t.Error("equal constants are two nodes, or others are one")
	}
}

// A constant that nothing reads, wherever it is made, does not disturb gorgonia.Grad.
func TestUnreadConstants(t *testing.T) {
	for unread := range 4 {
		g := gorgonia.NewGraph()
		constant := func(at int) {
			if at == unread {
				testutil.Get[*gorgonia.Node](t)(ops.Constant(g, 1.5))
			}
		}
		constant(0)
		x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(3), gorgonia.WithName("x"), gorgonia.WithInit(gorgonia.Ones()))
		constant(1)
		y := testutil.Get[*gorgonia.Node](t)(ops.Map("a*b", x, testutil.Get[*gorgonia.Node](t)(ops.Constant(g, 7.0))))
		constant(2)
		loss := testutil.Get[*gorgonia.Node](t)(ops.Sum(y))
		constant(3)
		d, err := gorgonia.Grad(loss, x)
		if err != nil {
			t.Fatalf("constant %d: %v", unread, err)
		}
		for _, m := range Machines() {
			if m.Name == "LispMachine" { // differentiates by itself
				continue
			}
			runOn(t, m, g)
			if got := elements(t, d[0].Value()); !slices.Equal(got, []float64{7, 7, 7}) {
				t.Errorf("%s, constant %d: got the gradient %v, want 7", m.Name, unread, got)
			}
		}
	}
}

// Constant returns an error for values that a graph cannot hold.
func TestConstantErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	for name, build := range map[string]func() (*gorgonia.Node, error){
		"got a nil graph":             func() (*gorgonia.Node, error) { return ops.Constant(nil, 1.0) },
		"got a string, want a tensor": func() (*gorgonia.Node, error) { return ops.Constant(g, "one") },
		"got a <nil>, want a tensor":  func() (*gorgonia.Node, error) { return ops.Constant(g, nil) },
		"got a []float32, want a tensor, a Gorgonia value, a number or a bool": func() (*gorgonia.Node, error) {
			return ops.Constant(g, []float32{1, 2})
		},
		"want at least one element": func() (*gorgonia.Node, error) {
			return ops.Constant(g, tensor.New(tensor.WithShape(0), tensor.WithBacking([]float64{})))
		},
	} {
		if n, err := build(); err == nil || !strings.Contains(err.Error(), "ops: Constant: ") || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v and error %v, want %q", n, err, name)
		}
	}
}

// Gradients where several elements are greatest, where factors are 0, at limits, and of rows with NaN or Inf: PyTorch's values of amax,
// logsumexp, softmax, log_softmax, and of functions where they have no derivative.
func TestGradientsAtTies(t *testing.T) {
	withoutTag(t)
	inf, nan := math.Inf(1), math.NaN()
	softMax := func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.SoftMax(x, 0) }
	logSoftMax := func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.LogSoftMax(x, 0) }
	max := func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Max(x) }
	min := func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Min(x) }
	logSumExp := func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.LogSumExp(x) }
	apply := func(expression string) func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Map(expression, x) }
	}
	nans := []float64{nan, nan, nan, nan}
	for name, c := range map[string]struct {
		build   func(x *gorgonia.Node) (*gorgonia.Node, error)
		x, want []float64
	}{
		"Max":                    {max, []float64{5, 2, 5, -1}, []float64{0.5, 0, 0.5, 0}},
		"Min":                    {min, []float64{3, 3, 3, 3}, []float64{0.25, 0.25, 0.25, 0.25}},
		"Prod":                   {func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Prod(x) }, []float64{2, 0, 3, 5}, []float64{0, 30, 0, 0}},
		"Prod, zeros":            {func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Prod(x) }, []float64{2, 0, 0, 5}, []float64{0, 0, 0, 0}},
		"Clip":                   {func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Clip(x, -1, 1) }, []float64{-2, -1, 1, 2}, []float64{0, 1, 1, 0}},
		"Max of NaN":             {max, []float64{5, nan, 5, -1}, nans},
		"Min of NaN":             {min, []float64{5, nan, 5, -1}, nans},
		"Max of -Inf":            {max, []float64{-inf, -inf, -inf, -inf}, []float64{0.25, 0.25, 0.25, 0.25}},
		"LogSumExp of some -Inf": {logSumExp, []float64{-inf, 0, 0, -inf}, []float64{0, 0.5, 0.5, 0}},
		"LogSumExp of -Inf":      {logSumExp, []float64{-inf, -inf, -inf, -inf}, nans},
		"LogSumExp of Inf":       {logSumExp, []float64{1, inf, -inf, 2}, []float64{0, nan, 0, 0}},
		"SoftMax of -Inf":        {softMax, []float64{-inf, -inf, -inf, -inf}, nans},
		"LogSoftMax of -Inf":     {logSoftMax, []float64{-inf, -inf, -inf, -inf}, nans},
		"LogSoftMax of Inf":      {logSoftMax, []float64{1, inf, -inf, 2}, nans},
		"power 0":                {apply("pow(a, 0)"), []float64{0, inf, nan, -2}, []float64{0, 0, 0, 0}},
		"power a - a":            {apply("pow(a, a - a)"), []float64{0, 1, 2, 0}, []float64{0, 0, 0, 0}},
		"power 1":                {apply("pow(a, 1)"), []float64{0, inf, -3, 2}, []float64{1, 1, 1, 1}},
		"power 2":                {apply("pow(a, 2)"), []float64{0, inf, -2, 2}, []float64{0, inf, -4, 4}},
		"power 1/2":              {apply("pow(a, 0.5)"), []float64{0, inf, -4, 4}, []float64{inf, 0, nan, 0.25}},
		"power of 0":             {apply("pow(0, a)"), []float64{0, 1, 0.5, -1}, []float64{0, 0, 0, -inf}},
		"square root":            {apply("sqrt(a)"), []float64{0, inf, -4, 4}, []float64{inf, 0, nan, 0.25}},
		"logarithm":              {apply("log(a)"), []float64{0, inf, -4, 4}, []float64{inf, 0, -0.25, 0.25}},
		"magnitude":              {apply("abs(a)"), []float64{0, inf, -inf, 4}, []float64{0, 1, -1, 1}},
		"inverse":                {apply("1 / a"), []float64{0, inf, -2, 4}, []float64{-inf, 0, -0.25, -0.0625}},
		"strided slices":         {func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Slice(x, gorgonia.S(1, 4, 2)) }, []float64{1, 2, 3, 4}, []float64{0, 1, 0, 1}},
	} {
		for _, m := range Machines() {
			if m.Name == "LispMachine" { // makes no gradients here
				continue
			}
			g := gorgonia.NewGraph()
			x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(4), gorgonia.WithValue(tensor.New(tensor.WithBacking(slices.Clone(c.x)))))
			loss := testutil.Get[*gorgonia.Node](t)(ops.Sum(testutil.Get[*gorgonia.Node](t)(c.build(x))))
			testutil.Get[gorgonia.Nodes](t)(gorgonia.Grad(loss, x))
			runOn(t, m, g)
			if got := elements(t, testutil.Get[gorgonia.Value](t)(x.Grad())); !slices.EqualFunc(got, c.want, func(a, b float64) bool { return a == b || a != a && b != b }) {
				t.Errorf("%s on %s: got the gradient %v of %v, want %v", name, m.Name, got, c.x, c.want)
			}
		}
	}
}

// Gradients pass StopGradient as if it were a constant, both of Gorgonia's ways.
func TestStopGradient(t *testing.T) {
	for _, m := range Machines() {
		g := gorgonia.NewGraph()
		x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(3), gorgonia.WithValue(tensor.New(tensor.WithBacking([]float64{1, -2, 3}))))
		stopped := testutil.Get[*gorgonia.Node](t)(ops.StopGradient(x))
		loss := testutil.Get[*gorgonia.Node](t)(ops.Sum(testutil.Get[*gorgonia.Node](t)(ops.Map("a*b", x, stopped))))
		if m.Name == "LispMachine" { // the suite's LispMachine makes no gradients
			m.New = func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return tape.NewLispMachine(g) }
		} else {
			testutil.Get[gorgonia.Nodes](t)(gorgonia.Grad(loss, x))
		}
		runOn(t, m, g)
		if got := elements(t, testutil.Get[gorgonia.Value](t)(x.Grad())); !slices.Equal(got, []float64{1, -2, 3}) {
			t.Errorf("%s: got the gradient %v, want the stopped values", m.Name, got)
		}
	}
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(3))
	loss := testutil.Get[*gorgonia.Node](t)(ops.Sum(testutil.Get[*gorgonia.Node](t)(ops.StopGradient(x))))
	if d, err := gorgonia.Grad(loss, x); err == nil {
		t.Errorf("a loss that only depends on stopped values: got the derivatives %v and no error", d)
	}
}

package cudaops

import (
	"math"
	"testing"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"gonum.org/v1/gonum/stat"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Gorgonia's machines make the faults that docs/gorgonia-ops.md lists. That it is
// right here, the ops' own tests show.
func TestGorgoniaIsWrong(t *testing.T) {
	quiet(t)
	run := func(g *G.ExprGraph) {
		t.Helper()
		m := tapeMachine(t, g)
		testutil.Do(t, m.RunAll())
		testutil.Do(t, m.Close())
	}
	const p = 0.25
	d := newDropGraph(t, tensor.Float64, []int{50}, p)
	run(d.g)
	w, y, dx := floats(t, d.w.Value()), floats(t, d.reads[0]), floats(t, testutil.Get[G.Value](t)(d.x.Grad()))
	for i := range y {
		if want := w[i] / p; y[i] != 0 && dx[i] != want {
			t.Errorf("the derivative of Dropout at a kept element is %v, and %v by the probability", dx[i], want)
		}
	}
	d = newDropGraph(t, tensor.Float64, []int{50}, 0)
	run(d.g)
	if dx := floats(t, testutil.Get[G.Value](t)(d.x.Grad())); stat.Mean(dx, nil) != 0 {
		t.Errorf("the derivative of Dropout of probability 0 is %v, want zeros", dx)
	}

	n := newNormGraph(t, tensor.Float64, []int{2, 3, 4, 4})
	testutil.Do(t, G.Let(n.w, tensor.Ones(tensor.Float64, 2, 3, 4, 4)))
	m := tapeMachine(t, n.g, G.EvalMode())
	testutil.Do(t, n.op.SetStats(tensor.Ones(tensor.Float64, 3), tensor.Ones(tensor.Float64, 3)))
	testutil.Do(t, m.RunAll())
	if dx := floats(t, testutil.Get[G.Value](t)(n.x.Grad())); math.Abs(dx[0]-1/math.Sqrt(normEpsilon)) > 1e-9 {
		t.Errorf("the derivative of an evaluating BatchNorm by variances of 1 is %v, want 1 / √epsilon", dx[0])
	}

	g := G.NewGraph()
	image := G.NewTensor(g, tensor.Float64, 4, G.WithName("image"), G.WithShape(1, 1, 4, 66), G.WithInit(G.RangedFrom(0)))
	one := G.NewTensor(g, tensor.Float64, 4, G.WithName("one"), G.WithShape(1, 1, 1, 1), G.WithInit(G.Ones()))
	y4 := testutil.Get[*G.Node](t)(G.GroupNorm(image, one, one, 1, 1, normEpsilon))
	run(g)
	if mean := stat.Mean(floats(t, y4.Value()), nil); math.Abs(mean-1) < 0.1 {
		t.Errorf("GroupNorm of a group of 264 elements with a bias of 1 has the mean %v, which is right", mean)
	}

	g = G.NewGraph()
	x := G.BinomialRandomNode(g, tensor.Float64, 1001, 0.5, 200)
	run(g)
	if mean := stat.Mean(floats(t, x.Value()), nil); math.Abs(mean-1000) > 10 {
		t.Errorf("1001 trials of a half succeed %v times, want about 1000", mean)
	}
}

func TestDocumentOfGorgonia(t *testing.T) {
	testutil.CheckDocument(t, "../docs/gorgonia-ops.md", "example_test.go", 2)
}

// Nodes that differ are one node to Gorgonia in the cases of docs/gorgonia-ops.md, and two where the page says so.
func TestMergedOps(t *testing.T) {
	node, g := testutil.Get[*G.Node](t), G.NewGraph()
	input := func(name string, shape ...int) *G.Node {
		return G.NewTensor(g, tensor.Float64, len(shape), G.WithName(name), G.WithShape(shape...))
	}
	indices := func(name string, shape ...int) *G.Node {
		return G.NewTensor(g, tensor.Int, len(shape), G.WithName(name), G.WithShape(shape...))
	}
	vector, x, one := input("vector", 1000), input("x", 4, 6), input("one", 1, 6)
	rows, image, whole := input("rows", 600, 6), input("image", 1, 1, 8, 8), input("whole", 384, 2)
	constant := func(at int, v float64) *G.Node { // zeros, but for an element
		backing := make([]float64, 1000)
		backing[at] = v
		return node(G.Add(vector, G.NewConstant(tensor.New(tensor.WithBacking(backing)))))
	}
	matrix := func(v float64, name string) *G.Node {
		constant := tensor.New(tensor.WithShape(20, 20), tensor.WithBacking(make([]float64, 400)))
		testutil.Do(t, constant.SetAt(v, 10, 10))
		return node(G.Square(node(G.Add(input("matrix", 20, 20), G.NewConstant(constant, G.WithName(name))))))
	}
	named := func(v float64, name string) *G.Node {
		return node(G.Add(vector, G.NewConstant(v, G.WithName(name))))
	}
	norm := func(momentum, epsilon float64) *G.Node {
		y, _, _, _, err := G.BatchNorm(x, one, one, momentum, epsilon)
		return testutil.Get[*G.Node](t)(y, err)
	}
	group := func(epsilon float64) *G.Node { return node(G.GroupNorm(x, one, one, 2, 6, epsilon)) }
	im2col := func(dilation int) *G.Node {
		return node(G.Im2Col(image, tensor.Shape{3, 3}, []int{1, 1}, []int{8, 8}, []int{dilation, dilation}))
	}
	ctc := func(r G.Reduction) *G.Node {
		return node(G.CTCLoss(input("log probabilities", 4, 2, 3), indices("targets", 2, 2), indices("lengths", 2), indices("target lengths", 2), r))
	}
	yolo := func(size int, least float32) *G.Node {
		in := G.NewTensor(g, tensor.Float32, 4, G.WithName("yolo"), G.WithShape(1, 18, 4, 4))
		return node(G.YOLOv3(in, []float32{10, 13, 16, 30, 33, 23}, []int{0, 1, 2}, size, 1, least))
	}
	pool := func(of func(*G.Node, tensor.Shape, []int, []int) (*G.Node, error), below int) *G.Node {
		return node(of(image, tensor.Shape{2, 2}, []int{0, below, 0, 0}, []int{2, 2}))
	}
	printed := func(dt tensor.Dtype, v any) *G.Node { // the constant of a sum
		y := node(G.Add(G.NewVector(g, dt, G.WithName("of "+dt.String()), G.WithShape(4)), G.NewConstant(v)))
		return testutil.Get[G.Nodes](t)(internal.Children(y))[1]
	}
	unconcat := testutil.Get[G.Nodes](t)(G.Unconcat(input("parts", 512, 2), 0, 2))
	// The derivatives w.r.t. the parts of a Concat are slices.
	parts := G.Nodes{input("part 0", 128, 2), input("part 1", 128, 2), input("part 2", 128, 2)}
	derivatives := testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(node(G.HadamardProd(whole, node(G.Concat(0, parts...)))))), parts...))
	type pair [2]*G.Node
	for what, p := range map[string]pair{
		"constants of 1000 elements":   {constant(500, 1), constant(500, 2)},
		"matrices of two names":        {matrix(1, "m1"), matrix(2, "m2")},
		"constants of one name":        {named(3.5, "k"), named(4.5, "k")},
		"constants of two types":       {printed(tensor.Float64, 5.5), printed(tensor.Float32, float32(5.5))},
		"inputs of one name and shape": {input("w", 2, 3), input("w", 2, 3)},
		"inputs without a name":        {G.NewMatrix(g, tensor.Float64, G.WithShape(2, 3)), G.NewMatrix(g, tensor.Float64, G.WithShape(2, 3))},
		"slices":                       {node(G.Slice(rows, G.S(0, 2))), node(G.Slice(rows, G.S(256, 258)))},
		"rows":                         {node(G.Slice(rows, G.S(1))), node(G.Slice(rows, G.S(257)))},
		"parts of Unconcat":            {unconcat[0], unconcat[1]},
		"derivatives of Concat":        {derivatives[0], derivatives[2]},
		"SoftMax and LogSoftMax":       {node(G.SoftMax(x, 0)), node(G.LogSoftMax(x, 0))},
		"a SoftMax and its Log":        {node(G.SoftMax(x, 1)), node(G.Log(node(G.SoftMax(x, 1))))},
		"Sparsemax":                    {node(G.Sparsemax(x, 0)), node(G.Sparsemax(x, 1))},
		"Dropout":                      {node(G.Dropout(x, 0.25)), node(G.Dropout(x, 0.5))},
		"BatchNorm":                    {norm(0.9, 1e-5), norm(0.92, 1e-3)},
		"GroupNorm":                    {group(1e-5), group(1e-3)},
		"uniform":                      {G.UniformRandomNode(g, tensor.Float64, 0, 1, 4), G.UniformRandomNode(g, tensor.Float64, 0, 1, 4)},
		"parameters of random tensors": {G.GaussianRandomNode(g, tensor.Float64, 0, 1e-7, 4), G.GaussianRandomNode(g, tensor.Float64, 0, 2e-7, 4)},
		"paddings of MaxPool2D":        {pool(G.MaxPool2D, 0), pool(G.MaxPool2D, 1)},
		"paddings of AveragePool2D":    {pool(G.AveragePool2D, 0), pool(G.AveragePool2D, 1)},
		"dilations of Im2Col":          {im2col(1), im2col(2)},
		"CTCLoss":                      {ctc(G.ReductionMean), ctc(G.ReductionSum)},
		"YOLOv3":                       {yolo(32, 0.5), yolo(64, 0.7)},
	} {
		if p[0] != p[1] {
			t.Errorf("%s: got two nodes, want one", what)
		}
	}
	for what, p := range map[string]pair{
		"constants that differ at the end": {constant(999, 1), constant(999, 2)},
		"constants of two names":           {named(3.5, "k1"), named(4.5, "k2")},
		"inputs of two names":              {input("w1", 2, 3), input("w2", 2, 3)},
		"slices of other ends":             {node(G.Slice(rows, G.S(0, 2))), node(G.Slice(rows, G.S(255, 257)))},
		"derivatives of Concat":            {derivatives[0], derivatives[1]},
		"SoftMax of x and of x + 0":        {node(G.SoftMax(x, 0)), node(G.LogSoftMax(node(G.Add(x, G.NewConstant(0.0))), 0))},
		"Dropout of x and of x + 0":        {node(G.Dropout(x, 0.25)), node(G.Dropout(node(G.Add(x, G.NewConstant(0.0))), 0.5))},
		"BatchNorm":                        {norm(0.9, 1e-5), norm(0.5, 1e-5)},
		"uniform of two shapes":            {G.UniformRandomNode(g, tensor.Float64, 0, 1, 4), G.UniformRandomNode(g, tensor.Float64, 0, 1, 4, 1)},
	} {
		if p[0] == p[1] {
			t.Errorf("%s: got one node, want two", what)
		}
	}
}

package coverage

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/internal/gorgonia"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A Case is one of Gorgonia's functions that make nodes, or several that make the same ops.
type Case struct {
	Names []string
	build func(in *inputs) (*G.Node, error)
}

// inputs makes the inputs of a case's graph.
type inputs struct {
	g     *G.ExprGraph
	dtype tensor.Dtype
	names int
	made  G.Nodes // of dtype, which derivatives are taken by
	wrap  func(n *G.Node) *G.Node
}

// of returns an input of the type that is measured.
func (in *inputs) of(shape ...int) *G.Node {
	n := in.typed(in.dtype, shape...)
	in.made = append(in.made, n)
	if in.wrap != nil {
		return in.wrap(n)
	}
	return n
}

// typed returns an input of another type.
func (in *inputs) typed(dt tensor.Dtype, shape ...int) *G.Node {
	in.names++ // Gorgonia merges inputs of one name
	return G.NewTensor(in.g, dt, len(shape), G.WithShape(shape...), G.WithName(fmt.Sprint("input ", in.names)))
}

// The shapes of most inputs: a matrix, and 2 images of 3 channels.
var matrix, images = []int{4, 6}, []int{2, 3, 8, 8}

func one(f func(*G.Node) (*G.Node, error), shape []int, names ...string) Case {
	return Case{names, func(in *inputs) (*G.Node, error) { return f(in.of(shape...)) }}
}

func two(f func(a, b *G.Node) (*G.Node, error), a, b []int, names ...string) Case {
	return Case{names, func(in *inputs) (*G.Node, error) { return f(in.of(a...), in.of(b...)) }}
}

func unary(f func(*G.Node) (*G.Node, error), name string) Case { return one(f, matrix, name) }

func binary(f func(a, b *G.Node) (*G.Node, error), name string) Case {
	return two(f, matrix, matrix, name)
}

func broadcast(f func(a, b *G.Node, left, right []byte) (*G.Node, error), name string) Case {
	return two(func(a, b *G.Node) (*G.Node, error) { return f(a, b, nil, []byte{0}) }, matrix, []int{1, 6}, name)
}

func axes(f func(*G.Node, ...int) (*G.Node, error), name string) Case {
	return unary(func(x *G.Node) (*G.Node, error) { return f(x, 1) }, name)
}

// elementwise are the functions that make element-wise ops, or several of them.
func elementwise() (cases []Case) {
	for _, f := range gorgonia.UnaryFunctions {
		cases = append(cases, unary(f.New, f.Name))
	}
	cases = append(cases, unary(G.Mish, "Mish"), unary(G.Rectify, "Rectify"), unary(func(x *G.Node) (*G.Node, error) { return G.LeakyRelu(x, 0.1) }, "LeakyRelu"))
	for _, f := range gorgonia.BinaryFunctions {
		cases = append(cases, binary(f.New, f.Name))
	}
	return append(cases, binary(G.Div, "Div"), binary(G.MinBetween, "MinBetween"), binary(G.MaxBetween, "MaxBetween"), binary(G.BinaryXent, "BinaryXent"),
		binary(func(a, b *G.Node) (*G.Node, error) { return G.ReduceAdd(G.Nodes{a, b, a}) }, "ReduceAdd"),
		two(func(a, b *G.Node) (*G.Node, error) { return G.ReduceMul(G.Nodes{a, b, a}) }, []int{4, 4}, []int{4, 4}, "ReduceMul"))
}

// Cases are all of Gorgonia's functions that make nodes with ops of its own.
var Cases = slices.Concat(elementwise(), []Case{
	broadcast(G.BroadcastAdd, "BroadcastAdd"), broadcast(G.BroadcastSub, "BroadcastSub"), broadcast(G.BroadcastHadamardProd, "BroadcastHadamardProd"),
	broadcast(G.BroadcastHadamardDiv, "BroadcastHadamardDiv"), broadcast(G.BroadcastPow, "BroadcastPow"),
	broadcast(same(G.BroadcastLt), "BroadcastLt"), broadcast(same(G.BroadcastGt), "BroadcastGt"), broadcast(same(G.BroadcastLte), "BroadcastLte"),
	broadcast(same(G.BroadcastGte), "BroadcastGte"), broadcast(same(G.BroadcastEq), "BroadcastEq"), broadcast(same(G.BroadcastNe), "BroadcastNe"),
	{[]string{"Broadcast"}, func(in *inputs) (*G.Node, error) {
		_, b, err := G.Broadcast(in.typed(in.dtype, 4, 6), in.of(1, 6), G.NewBroadcastPattern(nil, []byte{0}))
		return b, err
	}},
	broadcast(func(a, b *G.Node, _, _ []byte) (*G.Node, error) { return G.Auto(G.BroadcastAdd, a, b) }, "Auto"),
	axes(G.Sum, "Sum"), axes(G.Max, "Max"), axes(G.Mean, "Mean"),
	unary(func(x *G.Node) (*G.Node, error) { return G.Norm(x, 1, 2) }, "Norm"),
	one(func(x *G.Node) (*G.Node, error) { return G.LogSumExp(x, 0) }, []int{6}, "LogSumExp"),
	axes(G.SoftMax, "SoftMax"), axes(G.LogSoftMax, "LogSoftMax"), axes(G.Sparsemax, "Sparsemax"),
	two(G.Mul, []int{4, 6}, []int{6, 5}, "Mul"), two(G.OuterProd, []int{4}, []int{6}, "OuterProd"),
	two(func(a, b *G.Node) (*G.Node, error) { return G.BatchedMatMul(a, b) }, []int{2, 4, 6}, []int{2, 6, 5}, "BatchedMatMul"),
	two(func(a, b *G.Node) (*G.Node, error) { return G.Tensordot([]int{1}, []int{0}, a, b) }, []int{4, 6}, []int{6, 5}, "Tensordot"),
	unary(func(x *G.Node) (*G.Node, error) { return G.Reshape(x, tensor.Shape{2, 12}) }, "Reshape"), unary(G.Ravel, "Ravel"),
	unary(func(x *G.Node) (*G.Node, error) { return G.Transpose(x, 1, 0) }, "Transpose"),
	unary(func(x *G.Node) (*G.Node, error) { return G.Slice(x, nil, G.S(1, 4)) }, "Slice"),
	unary(func(x *G.Node) (*G.Node, error) { return G.At(x, 1, 2) }, "At"),
	unary(func(x *G.Node) (*G.Node, error) {
		return G.KeepDims(x, false, func(x *G.Node) (*G.Node, error) { return G.Sum(x, 1) })
	}, "KeepDims"),
	unary(func(x *G.Node) (*G.Node, error) { return G.SizeOf(1, x) }, "SizeOf"),
	binary(func(a, b *G.Node) (*G.Node, error) { return G.Concat(1, a, b) }, "Concat"),
	unary(func(x *G.Node) (*G.Node, error) {
		parts, err := G.Unconcat(x, 1, 2)
		if err != nil {
			return nil, err
		}
		return G.Sub(parts[0], parts[1])
	}, "Unconcat"),
	{[]string{"ByIndices"}, func(in *inputs) (*G.Node, error) { return G.ByIndices(in.of(4, 6), in.typed(tensor.Int, 3), 0) }},
	one(G.DiagFlat, []int{4}, "DiagFlat"),
	unary(func(x *G.Node) (*G.Node, error) {
		other := map[tensor.Dtype]tensor.Dtype{tensor.Float32: tensor.Float64, tensor.Float64: tensor.Float32}
		return G.ConvType(x, x.Dtype(), other[x.Dtype()])
	}, "ConvType"),
	one(func(x *G.Node) (*G.Node, error) {
		return G.Im2Col(x, tensor.Shape{3, 3}, tensor.Shape{1, 1}, tensor.Shape{1, 1}, tensor.Shape{1, 1})
	}, images, "Im2Col"),
	two(func(x, w *G.Node) (*G.Node, error) {
		return G.Conv2d(x, w, tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1})
	}, []int{2, 3, 8, 8}, []int{5, 3, 3, 3}, "Conv2d"),
	two(func(x, w *G.Node) (*G.Node, error) { return G.Conv1d(x, w, 3, 1, 1, 1) }, []int{2, 3, 1, 8}, []int{5, 3, 1, 3}, "Conv1d"),
	one(func(x *G.Node) (*G.Node, error) { return G.MaxPool2D(x, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}) }, images, "MaxPool2D"),
	one(func(x *G.Node) (*G.Node, error) { return G.MaxPool1D(x, 2, 0, 2) }, []int{2, 3, 1, 8}, "MaxPool1D"),
	one(func(x *G.Node) (*G.Node, error) {
		return G.AveragePool2D(x, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2})
	}, images, "AveragePool2D"),
	one(func(x *G.Node) (*G.Node, error) { return G.AveragePool1D(x, 2, 0, 2) }, []int{2, 3, 1, 8}, "AveragePool1D"),
	one(G.GlobalAveragePool2D, images, "GlobalAveragePool2D"),
	one(func(x *G.Node) (*G.Node, error) { return G.Upsample2D(x, 2) }, images, "Upsample2D"),
	{[]string{"BatchNorm"}, func(in *inputs) (*G.Node, error) {
		y, _, _, _, err := G.BatchNorm(in.of(2, 3, 8, 8), in.of(1, 3, 8, 8), in.of(1, 3, 8, 8), 0.9, 1e-5)
		return y, err
	}},
	{[]string{"GroupNorm"}, func(in *inputs) (*G.Node, error) {
		return G.GroupNorm(in.of(2, 4, 8, 8), in.of(1, 4, 1, 1), in.of(1, 4, 1, 1), 2, 4, 1e-5)
	}},
	unary(func(x *G.Node) (*G.Node, error) { return G.Dropout(x, 0.5) }, "Dropout"),
	{[]string{"UniformRandomNode", "GaussianRandomNode"}, func(in *inputs) (*G.Node, error) {
		return G.Add(G.UniformRandomNode(in.g, in.dtype, 0, 1, 4, 6), G.GaussianRandomNode(in.g, in.dtype, 0, 1, 4, 6))
	}},
	{[]string{"BinomialRandomNode"}, func(in *inputs) (*G.Node, error) {
		return G.BinomialRandomNode(in.g, in.dtype, 10, 0.5, 4, 6), nil
	}},
	{[]string{"CTCLoss"}, func(in *inputs) (*G.Node, error) {
		return G.CTCLoss(in.of(5, 2, 4), in.typed(tensor.Int, 2, 3), in.typed(tensor.Int, 2), in.typed(tensor.Int, 2), G.ReductionMean)
	}},
	{[]string{"YOLOv3"}, func(in *inputs) (*G.Node, error) {
		return G.YOLOv3(in.of(1, 21, 4, 4), []float32{10, 13, 16, 30, 33, 23}, []int{0, 1, 2}, 32, 2, 0.7)
	}},
})

// same makes a comparison return ones and zeros.
func same(f func(a, b *G.Node, same bool, left, right []byte) (*G.Node, error)) func(a, b *G.Node, left, right []byte) (*G.Node, error) {
	return func(a, b *G.Node, left, right []byte) (*G.Node, error) { return f(a, b, true, left, right) }
}

// others are functions that make no op, or none that a machine runs.
var others = []string{
	"ApplyOp", "ApplyOpWithName", "NewConstant", "NewMatrix", "NewScalar", "NewTensor", "NewUniqueNode", "NewVector", "NodeFromAny", "OneHotVector",
	"Read", "Set", "Must", "NewMapOp",
}

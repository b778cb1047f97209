package versions

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/window"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// Version makes nodes that run a numbered version of an op's kernel:
// Version(1).Sum(x) is the sum by one thread. Its methods take what the constructors
// of package ops take and return nodes of the same shapes and gradients (the gradient runs the
// op's own kernels). The zero Version is the op itself. [Docs] lists them.
type Version int

// Add is ops.Add by a numbered version of the kernel.
func (v Version) Add(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return v.apply("Add", func(p planned) ops.Primitive { return add{p} },
		func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Add(in[0], in[1]) }, a, b)
}

// Dot is ops.Dot by a numbered version of the kernel, which takes two vectors;
// matrices are an error.
func (v Version) Dot(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return v.apply("Dot", func(p planned) ops.Primitive { return dot{p} },
		func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Dot(in[0], in[1]) }, a, b)
}

// Histogram is ops.Histogram by a numbered version of the kernel; the last one is the
// op's own. Versions 2 and 3 count more bins than shared memory holds (58112 on an
// H100) as version 1 does.
func (v Version) Histogram(x *gorgonia.Node, bins int, lo, hi float64) (*gorgonia.Node, error) {
	return v.apply("Histogram", func(p planned) ops.Primitive { return histogram{p, basic.Bins{N: bins, Lo: lo, Hi: hi}} },
		func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Histogram(in[0], bins, lo, hi) }, x)
}

// Iterate is ops.Iterate by a numbered version of its kernel.
func (v Version) Iterate(w1, w2, x *gorgonia.Node, steps int) (*gorgonia.Node, error) {
	return v.apply("Iterate", func(p planned) ops.Primitive { return iterate{p, steps} },
		func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Iterate(in[0], in[1], in[2], steps) }, w1, w2, x)
}

// MatMul is ops.MatMul by a numbered version of the kernel, to which a vector is a
// matrix of one row or column. [Docs] describes how each sums. Versions above [TiledMatMuls] take square matrices, see [WarpgroupMatMul];
// on a GPU without their instructions the machine reports an error.
func (v Version) MatMul(a, b *gorgonia.Node, opts ...ops.MatMulOption) (*gorgonia.Node, error) {
	var transA, transB bool
	for _, o := range opts {
		transA, transB = transA || o == ops.TransA(), transB || o == ops.TransB()
	}
	return v.apply("MatMul", func(p planned) ops.Primitive { return matMul{p, transA, transB} },
		func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.MatMul(in[0], in[1], opts...) }, a, b)
}

// Sum is ops.Sum by a numbered version of the kernel. Versions add up whole tensors,
// version 9 matrices alone: other axes and ranks are errors.
func (v Version) Sum(x *gorgonia.Node, along ...int) (*gorgonia.Node, error) {
	return v.apply("Sum", func(p planned) ops.Primitive { return sum{p} },
		func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Sum(in[0], along...) }, x)
}

// WindowSum is ops.WindowSum by a numbered version of the kernel. The cost of versions
// 1 and 2 grows with the radius.
func (v Version) WindowSum(x *gorgonia.Node, radius int, opts ...ops.WindowOption) (*gorgonia.Node, error) {
	mode := window.WindowValid
	if len(opts) > 0 && opts[len(opts)-1] == ops.Same() {
		mode = window.WindowSame
	}
	return v.apply("WindowSum", func(p planned) ops.Primitive { return windowSum{p, radius, mode} },
		func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.WindowSum(in[0], radius, opts...) }, x)
}

// planned is an op's primitive with the plan of a version in place of its own.
type planned struct {
	ops.Primitive
	version Version
}

// String returns the op's name with the version, as in "Sum[0] version 4".
func (p planned) String() string { return fmt.Sprintf("%v version %d", p.Primitive, int(p.version)) }

// apply applies the version of an op, given by build, to nodes.
func (v Version) apply(op string, wrap func(planned) ops.Primitive, build func(in ...*gorgonia.Node) (*gorgonia.Node, error), in ...*gorgonia.Node) (*gorgonia.Node, error) {
	if most := len(docs[op]); v < 0 || int(v) > most {
		return nil, fmt.Errorf("versions: %s: got version %d, want 0 to %d", op, int(v), most)
	}
	if v == 0 {
		return build(in...)
	}
	p, err := primitiveOf(build, in)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return in[0], nil // the sum of a scalar
	}
	return ops.Apply(wrap(planned{p, v}), in...)
}

// primitiveOf returns the primitive of the op that build applies to nodes like those given, in a
// graph of its own, or nil if there is none.
func primitiveOf(build func(in ...*gorgonia.Node) (*gorgonia.Node, error), in []*gorgonia.Node) (ops.Primitive, error) {
	g := gorgonia.NewGraph()
	like := make([]*gorgonia.Node, len(in))
	for i, n := range in {
		if n == nil || n.Type() == nil {
			continue // the op reports the error
		}
		opts := []gorgonia.NodeConsOpt{gorgonia.WithName(fmt.Sprint("in", i))}
		if n.Shape().Dims() == n.Dims() {
			opts = append(opts, gorgonia.WithShape(n.Shape()...))
		}
		like[i] = gorgonia.NewTensor(g, n.Dtype(), n.Dims(), opts...)
	}
	out, err := build(like...)
	if err != nil {
		return nil, err
	}
	if o, ok := out.Op().(interface{ Primitive() ops.Primitive }); ok {
		return o.Primitive(), nil
	}
	return nil, nil
}

type add struct{ planned }

func (p add) Plan(dev kernels.Device, in ...ops.Type) (*kernels.Plan, error) {
	return Add(dev, in[0].Dtype, int(p.version), in[0].Elements())
}

type dot struct{ planned }

func (p dot) Infer(in ...ops.Type) (ops.Type, error) {
	out, err := p.Primitive.Infer(in...)
	if err == nil && in[0].Shape.Dims() != 1 {
		err = fmt.Errorf("got shapes %v, want two vectors: numbered versions take no matrices", in[0].Shape)
	}
	return out, err
}

func (p dot) Plan(dev kernels.Device, in ...ops.Type) (*kernels.Plan, error) {
	return Dot(dev, in[0].Dtype, int(p.version), in[0].Elements())
}

type histogram struct {
	planned
	bins basic.Bins
}

func (p histogram) Plan(dev kernels.Device, in ...ops.Type) (*kernels.Plan, error) {
	return Histogram(dev, in[0].Dtype, int(p.version), in[0].Elements(), p.bins)
}

type iterate struct {
	planned
	steps int
}

func (p iterate) Plan(dev kernels.Device, in ...ops.Type) (*kernels.Plan, error) {
	return Iterate(dev, in[0].Dtype, in[2].Elements(), p.steps, false, IterateBy{Barrier: Barrier(p.version)}), nil
}

type matMul struct {
	planned
	transA, transB bool
}

func (p matMul) Infer(in ...ops.Type) (ops.Type, error) {
	out, err := p.Primitive.Infer(in...)
	if err == nil && out.Shape.IsScalar() {
		err = fmt.Errorf("got shapes %v and %v, want at least one matrix: two vectors have the versions of Dot", in[0].Shape, in[1].Shape)
	}
	if err == nil && int(p.version) > TiledMatMuls {
		a, b := in[0].Shape, in[1].Shape
		if len(a) != 2 || len(b) != 2 || a[0] != a[1] || b[0] != b[1] || a[0]%warpgroupSide != 0 || in[0].Dtype != kernels.Float32 || p.transA || p.transB {
			err = fmt.Errorf("got %v of shapes %v and %v, want float32, square matrices of a side that is a multiple of %d, none transposed", in[0].Dtype, a, b, warpgroupSide)
		}
	}
	return out, err
}

func (p matMul) Plan(dev kernels.Device, in ...ops.Type) (*kernels.Plan, error) {
	a, b := in[0].Shape, in[1].Shape
	if int(p.version) > TiledMatMuls {
		return WarpgroupMatMul(dev, int(p.version), int64(a[0]), kernels.FullPrecision)
	}
	if len(a) == 1 {
		a = []int{1, a[0]}
	}
	if len(b) == 1 {
		b = []int{b[0], 1}
	}
	m, k, n := a[len(a)-2], a[len(a)-1], b[len(b)-1]
	if p.transA {
		m, k = k, m
	}
	if p.transB {
		n = b[len(b)-2]
	}
	batch := kernels.Count(a[:len(a)-2])
	return MatMul(in[0].Dtype, int(p.version), batch, int64(m), int64(n), int64(k), p.transA, p.transB)
}

type sum struct{ planned }

func (p sum) Infer(in ...ops.Type) (ops.Type, error) {
	out, err := p.Primitive.Infer(in...)
	switch {
	case err != nil:
	case !out.Shape.IsScalar():
		err = fmt.Errorf("got an output of shape %v for %v, but numbered versions add up all axes", out.Shape, in[0].Shape)
	case p.version == 9 && in[0].Shape.Dims() != 2:
		err = fmt.Errorf("got shape %v, want a matrix", in[0].Shape)
	}
	return out, err
}

func (p sum) Plan(dev kernels.Device, in ...ops.Type) (*kernels.Plan, error) {
	return Sum(dev, in[0].Dtype, int(p.version), in[0].Shape)
}

type windowSum struct {
	planned
	radius int
	mode   window.WindowMode
}

func (p windowSum) Plan(dev kernels.Device, in ...ops.Type) (*kernels.Plan, error) {
	x := in[0].Shape
	n := x[len(x)-1]
	return WindowSum(dev, in[0].Dtype, int(p.version), kernels.Count(x[:len(x)-1]), int64(n), int64(p.radius), p.mode)
}

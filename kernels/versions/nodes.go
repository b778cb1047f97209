package versions

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/window"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// Version makes nodes that run a numbered version of an op's kernel: Version(1).Sum(x) is the sum by one thread. Its methods take what the
// constructors of package ops take and return nodes of the same shapes and gradients (the gradient runs the op's own kernels). The zero Version is
// the op itself. [Docs] lists them.
type Version int

// Add is ops.Add by a numbered version of the kernel.
func (v Version) Add(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return v.apply("Add", nil, func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Add(in[0], in[1]) }, a, b)
}

// Dot is ops.Dot by a numbered version of the kernel, which takes two vectors; matrices are an error.
func (v Version) Dot(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return v.apply("Dot", nil, func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Dot(in[0], in[1]) }, a, b)
}

// Histogram is ops.Histogram by a numbered version of the kernel; the last one is the op's own. Versions 2 and 3 count more bins than shared memory
// holds (58112 on an H100) as version 1 does.
func (v Version) Histogram(x *gorgonia.Node, bins int, lo, hi float64) (*gorgonia.Node, error) {
	return v.apply("Histogram", basic.Bins{N: bins, Lo: lo, Hi: hi}, func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Histogram(in[0], bins, lo, hi) }, x)
}

// Iterate is ops.Iterate by a numbered version of its kernel.
func (v Version) Iterate(w1, w2, x *gorgonia.Node, steps int) (*gorgonia.Node, error) {
	return v.apply("Iterate", steps, func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Iterate(in[0], in[1], in[2], steps) }, w1, w2, x)
}

// MatMul is ops.MatMul by a numbered version of the kernel, to which a vector is a matrix of one row or column. [Docs] describes how each sums.
// Versions above [TiledMatMuls] take square matrices, see [WarpgroupMatMul]; on a GPU without their instructions the machine reports an error.
func (v Version) MatMul(a, b *gorgonia.Node, opts ...ops.MatMulOption) (*gorgonia.Node, error) {
	trans := [2]bool{slices.Contains(opts, ops.TransA()), slices.Contains(opts, ops.TransB())}
	return v.apply("MatMul", trans, func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.MatMul(in[0], in[1], opts...) }, a, b)
}

// Sum is ops.Sum by a numbered version of the kernel. Versions add up whole tensors, version 9 matrices alone: other axes and ranks are errors.
func (v Version) Sum(x *gorgonia.Node, along ...int) (*gorgonia.Node, error) {
	return v.apply("Sum", nil, func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Sum(in[0], along...) }, x)
}

// WindowSum is ops.WindowSum by a numbered version of the kernel. The cost of versions 1 and 2 grows with the radius.
func (v Version) WindowSum(x *gorgonia.Node, radius int, opts ...ops.WindowOption) (*gorgonia.Node, error) {
	w := windows{radius, window.WindowValid}
	if len(opts) > 0 && opts[len(opts)-1] == ops.Same() {
		w.mode = window.WindowSame
	}
	return v.apply("WindowSum", w, func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.WindowSum(in[0], radius, opts...) }, x)
}

// planned is an op's primitive with the plan of a version in place of its own.
type planned struct {
	ops.Primitive
	op      string
	version Version
	args    any // of the op: bins, steps, which operands are transposed, or windows
}

// windows are the arguments of WindowSum.
type windows struct {
	radius int
	mode   window.WindowMode
}

// String returns the op's name with the version, as in "Sum[0] version 4".
func (p planned) String() string { return fmt.Sprintf("%v version %d", p.Primitive, int(p.version)) }

// Infer refuses what the versions of an op do not compute.
func (p planned) Infer(in ...ops.Type) (ops.Type, error) {
	out, err := p.Primitive.Infer(in...)
	switch {
	case err != nil:
	case p.op == "Dot" && in[0].Shape.Dims() != 1:
		err = fmt.Errorf("got shapes %v, want two vectors: numbered versions take no matrices", in[0].Shape)
	case p.op == "MatMul" && out.Shape.IsScalar():
		err = fmt.Errorf("got shapes %v and %v, want at least one matrix: two vectors have the versions of Dot", in[0].Shape, in[1].Shape)
	case p.op == "MatMul" && int(p.version) > TiledMatMuls:
		a, b := in[0].Shape, in[1].Shape
		if len(a) != 2 || len(b) != 2 || a[0] != a[1] || b[0] != b[1] || a[0]%warpgroupSide != 0 || in[0].Dtype != kernels.Float32 || p.args != [2]bool{} {
			err = fmt.Errorf("got %v of shapes %v and %v, want float32, square matrices of a side that is a multiple of %d, none transposed", in[0].Dtype, a, b, warpgroupSide)
		}
	case p.op == "Sum" && !out.Shape.IsScalar():
		err = fmt.Errorf("got an output of shape %v for %v, but numbered versions add up all axes", out.Shape, in[0].Shape)
	case p.op == "Sum" && p.version == 9 && in[0].Shape.Dims() != 2:
		err = fmt.Errorf("got shape %v, want a matrix", in[0].Shape)
	}
	return out, err
}

// Plan plans the version.
func (p planned) Plan(dev kernels.Device, in ...ops.Type) (*kernels.Plan, error) {
	dt, shape, n, v := in[0].Dtype, in[0].Shape, in[0].Elements(), int(p.version)
	switch args := p.args.(type) {
	case basic.Bins:
		return Histogram(dev, dt, v, n, args)
	case int:
		return Iterate(dev, dt, in[2].Elements(), args, false, IterateBy{Barrier: Barrier(v)}), nil
	case [2]bool:
		return planMatMul(dev, dt, v, shape, in[1].Shape, args)
	case windows:
		last := len(shape) - 1
		return WindowSum(dev, dt, v, kernels.Count(shape[:last]), int64(shape[last]), int64(args.radius), args.mode)
	}
	switch p.op {
	case "Add":
		return Add(dev, dt, v, n)
	case "Dot":
		return Dot(dev, dt, v, n)
	}
	return Sum(dev, dt, v, shape)
}

// planMatMul plans version v of MatMul for operands of shapes a and b, some of them transposed.
func planMatMul(dev kernels.Device, dt kernels.Dtype, v int, a, b []int, trans [2]bool) (*kernels.Plan, error) {
	if v > TiledMatMuls {
		return WarpgroupMatMul(dev, v, int64(a[0]), kernels.FullPrecision)
	}
	if len(a) == 1 {
		a = []int{1, a[0]}
	}
	if len(b) == 1 {
		b = []int{b[0], 1}
	}
	m, k, n := a[len(a)-2], a[len(a)-1], b[len(b)-1]
	if trans[0] {
		m, k = k, m
	}
	if trans[1] {
		n = b[len(b)-2]
	}
	return MatMul(dt, v, kernels.Count(a[:len(a)-2]), int64(m), int64(n), int64(k), trans[0], trans[1])
}

// apply applies the version of an op with some arguments, which build applies, to nodes.
func (v Version) apply(op string, args any, build func(in []*gorgonia.Node) (*gorgonia.Node, error), in ...*gorgonia.Node) (*gorgonia.Node, error) {
	if most := len(docs[op]); v < 0 || int(v) > most {
		return nil, fmt.Errorf("versions: %s: got version %d, want 0 to %d", op, int(v), most)
	}
	if v == 0 {
		return build(in)
	}
	p, err := primitiveOf(build, in)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return in[0], nil // the sum of a scalar
	}
	return ops.Apply(planned{p, op, v, args}, in...)
}

// primitiveOf returns the primitive of the op that build applies to nodes like those given, in a graph of its own, or nil if there is none.
func primitiveOf(build func(in []*gorgonia.Node) (*gorgonia.Node, error), in []*gorgonia.Node) (ops.Primitive, error) {
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
	out, err := build(like)
	if err != nil {
		return nil, err
	}
	if o, ok := out.Op().(interface{ Primitive() ops.Primitive }); ok {
		return o.Primitive(), nil
	}
	return nil, nil
}

package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Dot is the inner product of two vectors of one length, a scalar, or of two
// matrices of one shape row by row, a vector.
//
//	out    = sum over j of a[j] * b[j]
//	out[i] = sum over j of a[i][j] * b[i][j]
//
// Products and sum are made in double precision whatever the type.
func Dot(a, b *gorgonia.Node) (*gorgonia.Node, error) { return Version(0).Dot(a, b) }

// Dot is [Dot] by a numbered version of the kernel. Versions 1 to 3 take two
// vectors; matrices are an error.
func (v Version) Dot(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	if err := v.check("Dot", len(dotVersions)); err != nil {
		return nil, err
	}
	return Apply(dot{v}, a, b)
}

type dot struct{ version Version }

func (d dot) String() string { return "Dot" + d.version.String() }

func (d dot) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 2); err != nil {
		return Type{}, err
	}
	x, y := in[0].Shape, in[1].Shape
	if !slices.Equal(x, y) || x.Dims() < 1 || x.Dims() > 2 {
		return Type{}, fmt.Errorf("got shapes %v and %v, want two vectors of one length or two matrices of one shape", x, y)
	}
	if d.version > 0 && x.Dims() != 1 {
		return Type{}, fmt.Errorf("got shapes %v, want two vectors: numbered versions take no matrices", x)
	}
	return Type{in[0].Dtype, without(x, []int{x.Dims() - 1})}, nil
}

func (d dot) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	if d.version > 0 {
		return versions.Dot(dev, in[0].Dtype, int(d.version), in[0].Elements())
	}
	rows, n := rowsOf(in[0].Shape)
	return kernels.Dot(dev, in[0].Dtype, rows, n), nil
}

func (dot) Adjoints(b *Backward) []Term {
	return []Term{b.Apply(scale{}, b.In(1), b.Grad()), b.Apply(scale{}, b.In(0), b.Grad())}
}

// rowsOf returns a shape as rows along its last axis.
func rowsOf(s tensor.Shape) (rows, n int64) {
	n = int64(s[len(s)-1])
	rows = 1
	for _, d := range s[:len(s)-1] {
		rows *= int64(d)
	}
	return rows, n
}

var dotVersions = []VersionDoc{
	{"partial sums", "640 blocks store their sums side by side, and a second launch adds them in order, so that the result stays on the device (versions.DotPartials leaves them to the host): the same bits in every run."},
	{"a mutex", "640 blocks take turns at one cell, guarded by a lock made of compare-and-swap: each turn is several trips to memory."},
	{"an atomic per block", "640 atomics on one cell: one trip each. The order is any, so the last bit may differ from run to run."},
}

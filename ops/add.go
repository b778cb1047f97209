package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"gorgonia.org/gorgonia"
)

// Add is the element-wise sum a + b of two tensors of one shape and type.
//
//	out[i] = a[i] + b[i]
func Add(a, b *gorgonia.Node) (*gorgonia.Node, error) { return Version(0).Add(a, b) }

// Add is [Add] by a numbered version of the kernel.
func (v Version) Add(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	if err := v.check("Add", len(addVersions)); err != nil {
		return nil, err
	}
	return Apply(add{v}, a, b)
}

type add struct{ version Version }

func (t add) String() string { return "Add" + t.version.String() }

func (add) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 2); err != nil {
		return Type{}, err
	}
	if a, b := in[0].Shape, in[1].Shape; !slices.Equal(a, b) {
		return Type{}, fmt.Errorf("got shapes %v and %v, want equal ones", a, b)
	}
	return in[0], nil
}

func (t add) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	if t.version > 0 {
		return versions.Add(dev, in[0].Dtype, int(t.version), in[0].Elements())
	}
	return kernels.Add(dev, in[0].Dtype, in[0].Elements()), nil
}

func (add) Adjoints(b *Backward) []Term { return []Term{b.Grad(), b.Grad()} }

var addVersions = []VersionDoc{
	{"one thread per element", "Each thread loads two numbers and stores one."},
	{"fast", "The op itself: 16 bytes a thread."},
}

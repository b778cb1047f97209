package ops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
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
		return kernels.AddVersion(dev, in[0].Dtype, int(t.version), in[0].Elements())
	}
	return kernels.Add(dev, in[0].Dtype, in[0].Elements()), nil
}

func (add) Adjoints(b *Backward) []Term { return []Term{b.Grad(), b.Grad()} }

var _ = register(Spec{
	Name:      "Add",
	Formula:   "out[i] = a[i] + b[i]",
	Doc:       "Element-wise sum of two tensors of one shape.",
	Tolerance: 1,
	Cases: append([]Case{
		addCase(tensor.Shape{1}), addCase(tensor.Shape{5}), addCase(tensor.Shape{1021}), addCase(tensor.Shape{100003}),
		addCase(tensor.Shape{17, 31}), addCase(tensor.Shape{2, 3, 4, 5}), addCase(tensor.ScalarShape()),
		bench("2^28", addCase(tensor.Shape{1 << 28})),
	}, addVersionCases()...),
	Versions: addVersions,
	Random:   func(r *rand.Rand) Case { return addCase(randomShape(r, 1, 4)) },
})

var addVersions = []VersionDoc{
	{"one thread per element", "Each thread loads two numbers and stores one."},
	{"fast", "The op itself: 16 bytes a thread."},
}

func addVersionCases() (cases []Case) {
	for i := range addVersions {
		v := Version(i + 1)
		for _, s := range []tensor.Shape{{1}, {513}, {100003}, {2, 3, 4, 5}} {
			cases = append(cases, versioned(v, addCase(s), v.addNodes))
		}
		cases = append(cases, versioned(v, bench("2^28", addCase(tensor.Shape{1 << 28})), v.addNodes))
	}
	return cases
}

func (v Version) addNodes(in ...*gorgonia.Node) (*gorgonia.Node, error) { return v.Add(in[0], in[1]) }

func addCase(s tensor.Shape) Case {
	return Case{
		Name:   fmt.Sprint([]int(s)),
		Shapes: []tensor.Shape{s, s},
		Build:  func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return Add(in[0], in[1]) },
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			for i := range in[0] {
				out = append(out, in[0][i]+in[1][i])
				magnitude = append(magnitude, math.Abs(in[0][i])+math.Abs(in[1][i]))
			}
			return out, magnitude
		},
	}
}

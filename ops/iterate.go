package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Iterate applies steps transformations by the n x n matrices w1 and w2 to the vector x of n
// elements:
//
//	X = x;  steps times: P[j] = sum over k of w1[j][k] * X[k], X[j] = sum over k of w2[j][k] * P[k];  out = X
//
// It is computed in double precision whatever the type, so a float32 result is rounded once. Its
// derivatives keep the intermediate steps in the operands' type. steps is 1 to 65536.
//
// Every element needs all elements of the previous half step, so that on a GPU the blocks of a grid
// must wait for one another 2 steps - 1 times. Package kernels/versions shows the ways to do that.
func Iterate(w1, w2, x *gorgonia.Node, steps int) (*gorgonia.Node, error) {
	return Apply(iterate{steps: steps}, w1, w2, x)
}

const iterateMaxSteps = 1 << 16

// iterate is the op, with the matrices as they are or transposed.
type iterate struct {
	steps      int
	transposed bool
}

func (o iterate) String() string {
	if o.transposed {
		return fmt.Sprintf("Iterate[%d transposed]", o.steps)
	}
	return fmt.Sprintf("Iterate[%d]", o.steps)
}

func (o iterate) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 3); err != nil {
		return Type{}, err
	}
	x := in[2].Shape
	if o.steps < 1 || o.steps > iterateMaxSteps {
		return Type{}, fmt.Errorf("got %d steps, want 1 to %d", o.steps, iterateMaxSteps)
	}
	if x.Dims() != 1 {
		return Type{}, fmt.Errorf("got x of shape %v, want a vector", x)
	}
	return in[2], checkWeights(in, x[0])
}

// checkWeights returns an error if w1 and w2 are not n x n.
func checkWeights(in []Type, n int) error {
	for i, w := range in[:2] {
		if want := (tensor.Shape{n, n}); !slices.Equal(w.Shape, want) {
			return fmt.Errorf("got w%d of shape %v, want %v", i+1, w.Shape, want)
		}
	}
	return nil
}

func (o iterate) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return basic.Iterate(dev, in[0].Dtype, in[2].Elements(), o.steps, o.transposed), nil
}

// Adjoints: out is the last row of the chain over rows u that are zero except for the first, x. The
// derivative by x is the chain backwards, and needs no intermediate row.
func (o iterate) Adjoints(b *Backward) []Term {
	w1, w2 := b.In(0), b.In(1)
	c := chain{steps: o.steps, transposed: o.transposed}
	row := func(i int, x Term) Term {
		return b.Apply(pickRows{wide: c.rows(), narrow: 1, first: i, stride: 1, put: true, vector: true}, x)
	}
	forth := b.Apply(c, w1, w2, row(0, b.In(2)))
	d1, d2, _ := c.derivatives(b, forth, row(c.rows()-1, b.Grad()))
	back := iterate{steps: o.steps, transposed: !o.transposed}
	return []Term{d1, d2, b.Apply(back, w2, w1, b.Grad())}
}

// chain is z[0] = u[0], z[k] = A z[k-1] + u[k] for k to 2 steps, A being w1 for
// odd k and w2 for even k, or their transposes. reversed is z[2 steps] = u[2 steps],
// z[k-1] = A z[k] + u[k-1]. Inputs are w1, w2 and u, whose rows are u[0], u[1], ...
type chain struct {
	steps                int
	transposed, reversed bool
}

func (c chain) String() string {
	return fmt.Sprintf("IterateChain[%d transposed=%v reversed=%v]", c.steps, c.transposed, c.reversed)
}

func (c chain) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 3); err != nil {
		return Type{}, err
	}
	u := in[2].Shape
	if u.Dims() != 2 || u[0] != c.rows() {
		return Type{}, fmt.Errorf("got u of shape %v, want %d rows", u, c.rows())
	}
	return in[2], checkWeights(in, u[1])
}

func (c chain) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return basic.IterateChain(dev, in[0].Dtype, int64(in[2].Shape[1]), c.steps, c.transposed, c.reversed), nil
}

func (c chain) rows() int { return 2*c.steps + 1 }

func (c chain) Adjoints(b *Backward) []Term {
	d1, d2, back := c.derivatives(b, b.Out(), b.Grad())
	return []Term{d1, d2, back}
}

// derivatives returns the derivatives by w1, w2 and the rows of u, which are inputs of b, from the
// chain itself, forth, and the derivative by it, g. The derivative by the rows of u is a chain too,
// in the other direction. Where A took row k to row m, its derivative is the sum over these k of
// row m of that chain times row k of forth: a product of matrices.
func (c chain) derivatives(b *Backward, forth, g Term) (d1, d2, back Term) {
	back = b.Apply(chain{c.steps, !c.transposed, !c.reversed}, b.In(0), b.In(1), g)
	take := func(rows Term, first int) Term {
		return b.Apply(pickRows{wide: c.rows(), narrow: c.steps, first: first, stride: 2}, rows)
	}
	derivative := func(to, from int) Term {
		x, y := take(back, to), take(forth, from)
		if c.transposed {
			x, y = y, x
		}
		return b.Apply(matMul{transA: true}, x, y)
	}
	// w1 leads to odd rows from even ones, w2 to even ones from odd ones.
	if c.reversed {
		return derivative(0, 1), derivative(1, 2), back
	}
	return derivative(1, 0), derivative(2, 1), back
}

// pickRows takes rows first, first + stride, ..., narrow of them, out of a matrix of wide rows;
// with put it goes the other way, into zeros. With vector the narrow side is one row without an
// axis of its own.
type pickRows struct {
	wide, narrow, first, stride int
	put, vector                 bool
}

func (o pickRows) String() string {
	name := "TakeRows"
	if o.put {
		name = "PutRows"
	}
	return fmt.Sprintf("%s[%d of %d from %d by %d vector=%v]", name, o.narrow, o.wide, o.first, o.stride, o.vector)
}

func (o pickRows) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 1); err != nil {
		return Type{}, err
	}
	x := in[0].Shape
	n := x[x.Dims()-1]
	wide, narrow := tensor.Shape{o.wide, n}, tensor.Shape{o.narrow, n}
	if o.vector {
		narrow = narrow[1:]
	}
	want, out := wide, narrow
	if o.put {
		want, out = narrow, wide
	}
	if !slices.Equal(x, want) {
		return Type{}, fmt.Errorf("got shape %v, want %v", x, want)
	}
	return Type{in[0].Dtype, out}, nil
}

func (o pickRows) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	_, n := rowsOf(in[0].Shape)
	return basic.IterateRows(in[0].Dtype, int64(o.wide), int64(o.narrow), n, o.first, o.stride, o.put), nil
}

func (o pickRows) Adjoints(b *Backward) []Term {
	o.put = !o.put
	return []Term{b.Apply(o, b.Grad())}
}

package gradcheck

import (
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/chewxy/hm"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// weigh is the op
//
//	y, w -> sum_k w[k] * y[k]
//
// on tensors of one type and shape, or scalars. It is a separate op because limits of Gorgonia's HadamardProd and Sum (scalars,
// some ranks) would look like faults of the expression under test. scale is its gradient w.r.t. y.
type weigh struct {
	dtype kernels.Dtype
	shape tensor.Shape
	scale bool // w, c -> w * c, where c is a scalar
}

var (
	_ gorgonia.SDOp = (*weigh)(nil)
	_ gorgonia.ADOp = (*weigh)(nil)
)

// newLoss applies weigh to y and a new input node that holds the weights.
func newLoss(y *gorgonia.Node, weights []float64) (*gorgonia.Node, error) {
	dt, _ := values.Dtype(y.Dtype())
	w := gorgonia.NewTensor(y.Graph(), y.Dtype(), y.Dims(), gorgonia.WithShape(y.Shape()...),
		gorgonia.WithName("gradcheck weights"), gorgonia.WithValue(value(dt, y.Shape(), weights)))
	return gorgonia.ApplyOp(&weigh{dtype: dt, shape: y.Shape()}, y, w)
}

func (o *weigh) Arity() int { return 2 }

func (o *weigh) Type() hm.Type {
	scalar := values.Tensor(o.dtype)
	full := hm.Type(scalar)
	if !o.shape.IsScalar() {
		full = gorgonia.TensorType{Dims: o.shape.Dims(), Of: scalar}
	}
	if o.scale {
		return hm.NewFnType(full, scalar, full)
	}
	return hm.NewFnType(full, full, scalar)
}

func (o *weigh) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	if o.scale {
		return o.shape.Clone(), nil
	}
	return tensor.ScalarShape(), nil
}

func (o *weigh) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	a, err := read(in[0])
	if err != nil {
		return nil, err
	}
	b, err := read(in[1])
	if err != nil {
		return nil, err
	}
	if o.scale {
		for k := range a.x {
			a.x[k] *= b.x[0]
		}
		return value(o.dtype, o.shape, a.x), nil
	}
	sum := 0.0
	for k := range a.x {
		sum += a.x[k] * b.x[k]
	}
	return value(o.dtype, tensor.ScalarShape(), []float64{sum}), nil
}

func (o *weigh) DiffWRT(int) []bool { return []bool{!o.scale, false} }

func (o *weigh) SymDiff(in gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	d, err := gorgonia.ApplyOp(&weigh{o.dtype, o.shape, true}, in[1], grad)
	return gorgonia.Nodes{d, nil}, err
}

func (o *weigh) DoDiff(_ gorgonia.ExecutionContext, in gorgonia.Nodes, out *gorgonia.Node) error {
	c, err := out.Grad()
	if err != nil {
		return err
	}
	d, err := (&weigh{o.dtype, o.shape, true}).Do(in[1].Value(), c)
	if err != nil {
		return err
	}
	sum, err := in[0].Grad()
	if err != nil {
		return err
	}
	switch sum := sum.(type) {
	case *gorgonia.F32:
		*sum += *d.(*gorgonia.F32)
	case *gorgonia.F64:
		*sum += *d.(*gorgonia.F64)
	case *tensor.Dense: // of any strides: it is like the output's value
		_, err = tensor.Add(sum, d, tensor.UseUnsafe())
	default:
		err = fmt.Errorf("the output's gradient is a %T", sum)
	}
	return err
}

func (o *weigh) ReturnsPtr() bool     { return true }
func (o *weigh) CallsExtern() bool    { return false }
func (o *weigh) OverwritesInput() int { return -1 }

func (o *weigh) WriteHash(h hash.Hash) {
	fmt.Fprintf(h, "gradcheck %v %v %v", o, o.dtype, o.shape)
}

func (o *weigh) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

func (o *weigh) String() string {
	if o.scale {
		return "gradcheck.scale"
	}
	return "gradcheck.weigh"
}

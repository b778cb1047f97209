package cudaops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Precision is the number of bits to which products of float32 matrices round their operands.
type Precision = kernels.Precision

// The precisions of [Products].
const (
	FullPrecision = kernels.FullPrecision // all 24 bits of float32, the default
	TF32          = kernels.TF32          // 11 bits
	BF16          = kernels.BF16          // 8 bits
)

// Products rounds the operands of products of float32 matrices to a precision. Tensor cores multiply such operands several
// times as fast as float32. Sums are float32, and so is everything that is kept: values, parameters, gradients, and what
// the solver keeps of them.
//
// Products are those of matrices and vectors, convolutions too. These use all bits: products of two vectors, those of float64,
// and on GPUs those that are small for the tensor cores, and all of a GPU that has no kernels for a precision (those below
// compute capability 8.0, and 11.0). On the host all operands are rounded. The report names the precision of each product.
func Products(p Precision) Option {
	return func(c *config) { c.precisions = append(c.precisions, precision{Precision: p, all: true}) }
}

// PrecisionOf is [Products] for these nodes alone, whatever Products says: each a product of float32 matrices.
// Derivatives are nodes of their own.
func PrecisionOf(p Precision, nodes ...*gorgonia.Node) Option {
	return func(c *config) { c.precisions = append(c.precisions, precision{Precision: p, nodes: nodes}) }
}

// precision holds the arguments of Products, if all is set, or of PrecisionOf.
type precision struct {
	Precision
	all   bool
	nodes []*gorgonia.Node
}

// ofProducts returns the precision of products, and that of those that have one of their own.
func (c *config) ofProducts() (all Precision, of map[*gorgonia.Node]Precision) {
	of = map[*gorgonia.Node]Precision{}
	for _, p := range c.precisions {
		if p.all {
			all = p.Precision
		}
		for _, n := range p.nodes {
			of[n] = p.Precision
		}
	}
	return all, of
}

// checkPrecisions checks the arguments of the options.
func (c *config) checkPrecisions() error {
	for _, p := range c.precisions {
		option := "PrecisionOf"
		if p.all {
			option = "Products"
		}
		if err := p.Check(); err != nil {
			return fmt.Errorf("%s: %w", option, err)
		}
		if !p.all && len(p.nodes) == 0 {
			return fmt.Errorf("%s got no nodes, want products", option)
		}
		if i := slices.Index(p.nodes, nil); i >= 0 {
			return fmt.Errorf("%s: node %d is nil, want a product", option, i)
		}
	}
	return nil
}

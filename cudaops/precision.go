package cudaops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The precisions of the option [Precision].
const (
	FullPrecision = kernels.FullPrecision // all 24 bits of float32, the default
	TF32          = kernels.TF32          // 11 bits
	BF16          = kernels.BF16          // 8 bits
	F16           = kernels.F16           // 11 bits, up to 65504: see [LossScaling]
)

// Precision rounds the operands of matmuls in float32 to p: of these nodes or, without nodes, of all others. Tensor cores
// multiply rounded operands several times as fast. Accumulators, values, gradients, parameters and the solver's moments stay
// float32.
//
// It applies to products of matrices and vectors, to convolutions, and, as TF32, on GPUs alone, to attention. Products of two vectors and products in float64 use
// all bits. So do all products on GPUs without kernels for p (compute capability below 8.0, and 11.0), and products that are too
// small for tensor cores. The host rounds all operands. The report names the precision of each product.
//
// Nodes must be products of float32 matrices, or attention of float32. A derivative is a node of its own, with a precision of its own.
func Precision(p kernels.Precision, nodes ...*gorgonia.Node) Option {
	return func(c *config) { c.precisions = append(c.precisions, precision{p, nodes}) }
}

// precision holds the arguments of the option Precision.
type precision struct {
	kernels.Precision
	nodes []*gorgonia.Node
}

// Mixed stores values between launches in 16 bits, p being BF16 or F16: results of matmuls in float32, what is computed of them element by
// element, and the gradients w.r.t. these. It sets [Precision] of products to p, except of nodes with their own. Launches compute in
// float32, and round to nearest even when they store. Parameters, the solver's moments, gradients w.r.t. parameters, statistics, losses, sums
// and all values on the host stay float32. docs/precision.md lists which values are stored how, and the report shows the type of each.
//
// Devices and products that do not multiply in p leave their operands in float32: see [Precision]. A graph with float64 values is an error.
// Gradients in F16 underflow below 2^-24 and overflow from 65520 on: train with [LossScaling].
func Mixed(p kernels.Precision) Option {
	return func(c *config) { c.mixed, c.passes = append(c.mixed, p), passes.Run }
}

// checkMixed checks the arguments of each Mixed, and that the graph has no float64.
func (c *config) checkMixed(g *gorgonia.ExprGraph) error {
	for _, p := range c.mixed {
		if !isHalf(p) || p != c.mixed[0] {
			return fmt.Errorf("Mixed: got %v, want BF16 or F16, and one of them", c.mixed)
		}
		for _, n := range g.AllNodes() {
			if d, ok := internal.ElementType(n); ok && d == tensor.Float64 {
				return fmt.Errorf("Mixed: got node %s of float64, want a graph of float32", internal.Name(n))
			}
		}
	}
	return nil
}

func isHalf(p kernels.Precision) bool {
	_, half := p.Half()
	return half
}

// stored returns the precision of Mixed, FullPrecision without it.
func (c *config) stored() kernels.Precision {
	if len(c.mixed) == 0 {
		return FullPrecision
	}
	return c.mixed[0]
}

// ofProducts returns the precision of all products, and the precisions of nodes that override it.
func (c *config) ofProducts() (all kernels.Precision, byNode map[*gorgonia.Node]kernels.Precision) {
	all, byNode = c.stored(), map[*gorgonia.Node]kernels.Precision{}
	for _, p := range c.precisions {
		if len(p.nodes) == 0 {
			all = p.Precision
		}
		for _, n := range p.nodes {
			byNode[n] = p.Precision
		}
	}
	return all, byNode
}

// checkPrecisions checks the arguments of each Precision.
func (c *config) checkPrecisions() error {
	for _, p := range c.precisions {
		if err := p.Check(); err != nil {
			return fmt.Errorf("Precision: %w", err)
		}
		if i := slices.Index(p.nodes, nil); i >= 0 {
			return fmt.Errorf("Precision: node %d is nil, want a product", i)
		}
	}
	return nil
}

package gemm

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// The model's times of products by kernels without [rates], in us, fitted by hand to those of 27 layers of 1 x 1 filters on an H200.
const (
	convProductLaunch = 3
	convProductBytes  = 3.5e6 // of all operands in one
	convProductFlops  = 20e6  // of FMA in one
	convProductTerms  = 80    // that a block adds up one after the other in one
	convProductWave   = 8     // blocks of an SM whose loads hide one another's latency
	convSpreadBytes   = 2.6e6 // that spread writes and reads in one
)

// spreadKernel puts a product among zeros, for the gradient w.r.t. images at a stride.
var spreadKernel = own.Pair("conv", "conv_spread", spreadBody[float32], spreadBody[float64])

const spreadElements = 4 * convThreads // of a block

type spreadArgs struct {
	From, To                     kernels.Ref
	Count                        int64
	High, Wide, StrideY, StrideX arith.Divide
	Rows, Columns                int64 `arg:"int32"` // of From
}

// spread reports whether a product is put among zeros.
func (v Conv) spread() bool { return v.Result == ConvImages && v.Rows.Stride*v.Columns.Stride > 1 }

// product returns the convolution as products of a matrix for each image: filters of one tap that move by one pixel, or by any stride for the gradient w.r.t. images, are a matrix that all images
// share. Matrices of the gradient w.r.t. the filters are added up. ok is false for other convolutions.
func (v Conv) product(dev kernels.Device) (x problem, ok bool) {
	y, z := v.Rows, v.Columns
	if dev.Kind != kernels.GPU || v.Groups > 1 || v.ChannelsLast != [2]bool{} || y.Size*z.Size > 1 || y.Stride*z.Stride > 1 && (!v.spread() || v.elements()[ConvImages] >= 1<<31) {
		return x, false
	}
	p := Product{Dtype: v.Dtype, Batch: v.Images, M: v.Filters, N: y.Out() * z.Out(), K: v.Channels, A: Operand{Shared: v.Images > 1}, Round: v.Round}
	switch v.Result {
	case ConvImages:
		p.M, p.K, p.A.Trans = v.Channels, v.Filters, true
	case ConvFilters:
		p.N, p.K, p.A.Shared, p.B.Trans = v.Channels, y.In*z.In, false, true
	}
	if p.dot() || p.M*p.N == 1 { // package reduce's
		return x, false
	}
	return problem{Product: p, dev: dev, a: kernels.In(1), b: kernels.In(0), c: out, added: v.Result == ConvFilters}, true
}

// chooseProduct returns the kernel for the products that [Product] has for them, and its time by the model, which is infinite without such a kernel.
func (v Conv) chooseProduct(dev kernels.Device) (option, float64) {
	x, ok := v.product(dev)
	if !ok {
		return option{}, math.Inf(1)
	}
	c, x, d := choose(x)
	if c == nil || c.form != Plain {
		return option{}, math.Inf(1)
	}
	o := option{c, x, d}
	us := o.predicted()
	if us == 0 {
		bytes, flops, terms := float64(x.size())*float64(x.M*x.K+x.Batch*x.K*x.N+x.Batch*x.M*x.N), 2*float64(c.count(&x)*max(c.m, 1)*max(c.n, 1))*float64(x.K), x.K
		if d.chunk > 0 {
			terms = min(terms, d.chunk)
		}
		us = convProductLaunch + max(bytes/convProductBytes, flops/convProductFlops, float64(terms*kernels.CeilDiv(d.blocks, convProductWave*x.sms()))/convProductTerms)
	}
	if n := x.partials(d); x.added && n > 1 {
		us += convLaunch + float64(x.size()*n*x.M*x.N)/convProductBytes
	}
	if v.spread() {
		sizes := v.elements()
		us += convLaunch + float64(x.size()*(sizes[ConvImages]+x.elements()))/convSpreadBytes
	}
	return o, us
}

// byProduct returns the method by products.
func (v Conv) byProduct(o option, us float64) convMethod {
	return convMethod{"product", us, Plain, func(p *kernels.Plan, _ convArgs) error {
		if v.spread() {
			o.as.c = p.Workspace(o.as.elements() * o.as.size())
		}
		if o.emit(p, &o.as, o.cut); o.rounds {
			p.Precision = v.Round
		}
		if !v.spread() {
			return nil
		}
		y, x, count := v.Rows, v.Columns, v.elements()[ConvImages]
		blocks := kernels.CeilDiv(count, spreadElements)
		p.Launch(spreadKernel[v.Dtype], int(blocks), convThreads, spreadArgs{o.as.c, out, count, arith.DivideBy(y.In), arith.DivideBy(x.In), arith.DivideBy(y.Stride), arith.DivideBy(x.Stride), y.Out(), x.Out()})
		return kernels.CheckGrid(blocks)
	}}
}

func spreadBody[T kernels.Float](c kernels.Call) {
	a := kernels.Args[spreadArgs](c)
	from, to := kernels.Slice[T](c, a.From), kernels.Slice[T](c, a.To)[:a.Count]
	clear(to)
	for i := range a.Count / (a.High.D * a.Wide.D) * a.Rows {
		for k := range a.Columns {
			to[(i/a.Rows*a.High.D+i%a.Rows*a.StrideY.D)*a.Wide.D+k*a.StrideX.D] = from[i*a.Columns+k]
		}
	}
}

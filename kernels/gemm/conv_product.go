package gemm

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// The model's times of products by kernels without [rates], in us, fitted by hand to those of 27 layers of 1 x 1 filters on an H200.
const (
	convProductLaunch = 3
	convProductBytes  = 3.5e6 // of all operands in one
	convProductFlops  = 20e6  // of FMA in one
	convProductTerms  = 80    // that a block adds up one after the other in one
	convProductWave   = 8     // blocks of an SM whose loads hide one another's latency
)

// product returns the convolution as products of a matrix for each image: filters of one tap that move by one pixel are a matrix that all images share. Matrices of the gradient w.r.t. the
// filters are added up. ok is false for other convolutions.
func (v Conv) product(dev kernels.Device) (x problem, ok bool) {
	y, z := v.Rows, v.Columns
	if dev.Kind != kernels.GPU || v.Groups > 1 || v.ChannelsLast != [2]bool{} || y.Size*z.Size*y.Stride*z.Stride > 1 {
		return x, false
	}
	p := Product{Dtype: v.Dtype, Batch: v.Images, M: v.Filters, N: y.In * z.In, K: v.Channels, A: Operand{Shared: v.Images > 1}, Round: v.Round}
	switch v.Result {
	case ConvImages:
		p.M, p.K, p.A.Trans = v.Channels, v.Filters, true
	case ConvFilters:
		p.N, p.K, p.A.Shared, p.B.Trans = v.Channels, y.In*z.In, false, true
	}
	if p.dot() || p.M*p.N == 1 { // package reduce's
		return x, false
	}
	return problem{Product: p, dev: dev, a: kernels.In(1), b: kernels.In(0), added: v.Result == ConvFilters}, true
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
	return o, us
}

// byProduct returns the method by products.
func (v Conv) byProduct(o option, us float64) convMethod {
	return convMethod{"product", us, Plain, func(p *kernels.Plan, _ convArgs) error {
		if o.emit(p, &o.as, o.cut); o.rounds {
			p.Precision = v.Round
		}
		return nil
	}}
}

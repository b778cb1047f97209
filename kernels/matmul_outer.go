package kernels

// outerKernels are those of matmul_outer.cu for one element type.
type outerKernels struct{ outer, tall, slim, tiny *Kernel }

func outersOf[T Float](suffix string) outerKernels {
	kernel := func(name string) *Kernel {
		return own.Kernel("matmul_outer", "matmul_"+name+"_"+suffix, matmulBody[T](false))
	}
	return outerKernels{kernel("outer"), kernel("tall"), kernel("slim"), kernel("tiny")}
}

var matmulOuter = [...]outerKernels{Float32: outersOf[float32]("f32"), Float64: outersOf[float64]("f64")}

// Limits of matmul_outer.cu's kernels, beside those of the policy.
const (
	tallColumns = 16 // of a narrow C
	slimColumns = 4
	slimTerms   = 8
)

// fewTerms appends the launch of a product of few terms without an epilogue, and reports
// whether it is one. With an epilogue the unsliced tiles compute the same bits.
func (p *Plan) fewTerms(dev Device, c result, x product) bool {
	pol := matmulPolicies.on(dev)
	side, size := min(x.m, x.n), max(x.m, x.n)
	switch {
	case dev.Major == 0 || c.epilogue.chain != 0 || x.k == 0 || c.count() < pol.wide*int64(dev.SMs) || c.count() > mostTerms:
		return false
	case x.m*x.n <= pol.tiny && x.k <= tallColumns && x.batch > 1:
		p.tiny(c, x)
	case side <= tallColumns && x.k <= pol.tall && size >= 128:
		p.tall(c, x)
	case x.k <= pol.outer && (!x.transB || x.k == 1) && x.n >= 128 && apart(c.dt, x.n) > 1:
		p.outer(c, x)
	default:
		return false
	}
	return true
}

// outer appends the launch of a product with a long C.
func (p *Plan) outer(c result, x product) {
	const threads, warps, rows = 256, 8, 8
	step, w := apart(c.dt, x.n), 16/c.dt.Size()
	cols := x.n
	if step > 1 {
		cols += w - 1
	}
	blocks := x.batch * CeilDiv(x.m, step*rows*warps) * CeilDiv(cols, 32*w) * step
	p.Launch(matmulOuter[c.dt].outer, int(blocks), threads, x.arguments(Ref{Out, 0}, x.k, 1)...)
}

// tall appends the launch of a product with a narrow C.
func (p *Plan) tall(c result, x product) {
	if x.m < x.n {
		x = x.transposed()
	}
	kernel, columns, threads := matmulOuter[c.dt].tall, int64(tallColumns), 1024/c.dt.Size()
	rows := threads // of a block
	if x.n <= slimColumns && x.k <= slimTerms {
		kernel, columns, rows = matmulOuter[c.dt].slim, slimColumns, 4*threads
	}
	pitch := int64(0)
	if !x.transA {
		pitch = x.k | 1
	}
	if !x.transC {
		pitch = max(pitch, x.n|1)
	}
	l := p.Launch(kernel, int(x.batch*CeilDiv(x.m, rows)), int(threads), x.arguments(Ref{Out, 0}, x.k, 1)...)
	l.Shared = int((columns*x.k + rows*pitch) * c.dt.Size())
}

// tiny appends the launch of a batch of small matrices.
func (p *Plan) tiny(c result, x product) {
	p.elements(matmulOuter[c.dt].tiny, c.count(), x.arguments(Ref{Out, 0}, x.k, 1)...)
}

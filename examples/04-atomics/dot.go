package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reduce"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// dot is the section on dot products: blocks that make one number together.
func dot(p *notebook.Page) {
	n := p.Timed(10_000_000, 100_000)
	p.Heading("A dot product: whose turn is it?")
	p.Text(`A histogram has many cells. A dot product has one, and all blocks want it. Here a is %d ones and b is 1/n as often, so that the result is
		1, or as near to it as float32 is to 1/n. 32 x 20 blocks of 256 threads: each thread adds up its products in double precision, and
		a tree in shared memory makes one sum of the block's 256. Then there are 640 sums.`, n)
	p.Source("versions/dot.cu", "thread_dot", "block_dot")
	p.Source("versions/blocksum.cuh", "tree_sum")
	slip(p)
	p.Text(`Back to the 640 sums. The first version stores them side by side, and they are added in order: by the host, which gets all of
		them back, or, as in the op's version 1, by a second launch, which leaves the result on the device. In the second version the blocks take turns under a lock, in
		the third the memory itself adds. Both need one launch for the product, but add in the order in which blocks come, so that the last bit may differ from run to run.`)
	p.Source("versions/dot.cu", "dot_tree", "dot_mutex", "dot_atomic")

	p.Text(`Since constant vectors hide slips, each way is also tried on two vectors of random numbers from -1 to 1. They are multiples of 1/2048, so that double precision
		adds their products without rounding, and the result must be right to the last bit, whatever the order: in double where the host adds up, in float32, the ops' own
		type, elsewhere.`)
	task := newDotTask(n)
	task.table(p)
	partial := task.endToEnd(p, "partial sums", versions.DotPartials(kernels.Float32, int64(n)))
	op := task.endToEnd(p, "the op", reduce.Dot(p.Target(), kernels.Float32, 1, int64(n)))
	p.Text(`The table has the times of the launches. By the host's clock, from the launch until the host has the result, the vectors being on the device, it takes %v with 640
		partial sums copied back and added here, and %v by the op, whose one result is copied back. In a graph the result of an op stays on the device, so there the second step is always
		a launch.`, partial, op)
	p.Text(`The lock's price was seen above: a turn for each block, one after the
		other. One atomic for each block takes almost no time, but its order, and so the last bit of the result, is left to chance; the op has no lock and no atomic, and the same
		bits in each run.`)
}

// dotTask is two dot products: of the constant vectors a and b, and of u and v, random
// numbers whose products add up without rounding.
type dotTask struct {
	a, b, u, v         []float32
	exact, exactVaried float64
}

func newDotTask(n int) dotTask {
	d := dotTask{a: make([]float32, n), b: make([]float32, n), u: varied(n, 1), v: varied(n, 2)}
	for i := range n {
		d.a[i], d.b[i] = 1, 1/float32(n)
	}
	d.exact, d.exactVaried = float64(n)*float64(d.b[0]), loopDot(d.u, d.v)
	return d
}

// check compares a result of a and b with the exact one.
func (d dotTask) check(name string, sum float64) {
	if !(math.Abs(sum-d.exact) <= 0x1p-24*d.exact) {
		notebook.Fail("dot, %s: got %v, want %v", name, sum, d.exact)
	}
}

// checkVaried compares a result of u and v with the exact one, to the last bit of double precision
// or of float32.
func (d dotTask) checkVaried(name string, sum float64) {
	if sum != d.exactVaried && sum != float64(float32(d.exactVaried)) {
		notebook.Fail("dot of random numbers, %s: got %v, want %v", name, sum, d.exactVaried)
	}
}

// table has a row for the host's loop and for each way of the GPU.
func (d dotTask) table(p *notebook.Page) {
	n := int64(len(d.a))
	t := figure.Table{Caption: fmt.Sprintf("Dot product of 2 x %d float32", n), Header: []string{"by", "time", "spread", "GB/s", "result", "of random numbers"}}
	add := func(name string, mean, spread notebook.Measured, sum, random float64) {
		t.Add(name, mean, spread, 8*float64(n)/mean.Value/1e3, fmt.Sprintf("%.9f", sum), fmt.Sprintf("%.6f", random))
		d.check(name, sum)
		d.checkVaried(name, random)
	}
	loop, host := notebook.Timed(p, "dot, Go loop", func() float64 { return loopDot(d.a, d.b) })
	add("this host: a Go loop", notebook.In(1000*host.Value, "us"), notebook.In(math.NaN(), ""), loop, d.exactVaried)
	known := false
	version := func(v int) *kernels.Plan { return notebook.Must(versions.Dot(p.Target(), kernels.Float32, v, n)) }
	for _, way := range []struct {
		name string
		plan *kernels.Plan
	}{
		{"partial sums, added on the host", versions.DotPartials(kernels.Float32, n)},
		{"version 1: partial sums, a second launch", version(1)},
		{"version 2: a mutex", version(2)},
		{"version 3: an atomic", version(3)},
		{"the op, ops.Dot", reduce.Dot(p.Target(), kernels.Float32, 1, n)},
	} {
		ran := p.Run("dot, "+way.name, way.plan, [][]byte{kernels.Bytes(d.a), kernels.Bytes(d.b)}, 50)
		random := p.Output(way.plan, [][]byte{kernels.Bytes(d.u), kernels.Bytes(d.v)})
		add("GPU, "+way.name, ran.Mean, ran.Spread, notebook.AddUp(ran.Out), notebook.AddUp(random))
		known = known || ran.Mean.Known()
	}
	p.Table(t)
	if !known {
		p.Text("The GPU's times here are not recorded yet and print as -; the results are those of the kernels' Go bodies.")
	}
}

// endToEnd returns the time until the host has the result of u and v.
func (d dotTask) endToEnd(p *notebook.Page, way string, plan *kernels.Plan) notebook.Measured {
	return p.EndToEnd("dot, end to end, "+way, plan, [][]byte{kernels.Bytes(d.u), kernels.Bytes(d.v)}, 50, func(out []byte) {
		d.checkVaried(way+", end to end", notebook.AddUp(out))
	})
}

// loopDot is the dot product by the plainest loop.
func loopDot(a, b []float32) (sum float64) {
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}

// varied returns n multiples of 1/2048 from -1 to 1, different ones for each seed.
func varied(n int, seed byte) []float32 {
	r := rand.New(rand.NewChaCha8([32]byte{seed}))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.IntN(4097)-2048) / 2048
	}
	return x
}

// slip shows the result of a tree that adds the neighbour instead of the upper half.
func slip(p *notebook.Page) {
	p.Text(`A slip in this tree is easily made and hard to see: ` + "`s[tid + 1]`" + ` where it should say ` + "`s[tid + half]`" + `. Each step then adds
		a neighbour, so that of 256 values only the first nine count, but those many times, 256 in all. When all values are equal, as they are for our two vectors, the result is the same:`)
	same, varied := make([]float64, 256), make([]float64, 256)
	for i := range same {
		same[i], varied[i] = 1./256, float64(i)/(255*128)
	}
	t := figure.Table{Caption: "256 values whose sum is 1, added up by both trees, in Go", Header: []string{"values", "s[tid + half]", "s[tid + 1]"}}
	for _, in := range []struct {
		name   string
		values []float64
		hidden bool
	}{{"all equal", same, true}, {"0, 1, ..., 255, divided by their sum", varied, false}} {
		right, wrong := tree(in.values, false), tree(in.values, true)
		if math.Abs(right-1) > 1e-12 || (math.Abs(wrong-1) < 1e-12) != in.hidden {
			notebook.Fail("tree of %s: got %v and %v with the slip", in.name, right, wrong)
		}
		t.Add(in.name, fmt.Sprintf("%.6f", right), fmt.Sprintf("%.6f", wrong))
	}
	p.Table(t)
	p.Text("So a sum is to be tried on values that differ: the tests of all ops draw theirs at random.")
}

// tree adds up values, a power of two of them, as tree_sum does, or with the slip.
func tree(values []float64, slipped bool) float64 {
	s := append([]float64(nil), values...)
	for half := len(s) / 2; half > 0; half /= 2 {
		other := half
		if slipped {
			other = 1
		}
		for tid := range half { // in order: s[tid+1] is still that of the step before
			s[tid] += s[tid+other]
		}
	}
	return s[0]
}

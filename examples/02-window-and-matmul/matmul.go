package main

import (
	"fmt"
	"image/color"
	"math"
	"strings"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// last is the number of versions of MatMul for any product; version 0 is the op itself.
const last = versions.TiledMatMuls

// A square is a product of n x n matrices by a version.
type square struct {
	version, n int
	transA     bool
}

func (s square) plan(dev kernels.Device, dt kernels.Dtype) (*kernels.Plan, error) {
	n := int64(s.n)
	if s.version == 0 {
		return gemm.Product{Dtype: dt, Batch: 1, M: n, N: n, K: n, A: gemm.Operand{Trans: s.transA}}.Plan(dev)
	}
	return versions.MatMul(dt, s.version, 1, n, n, n, s.transA, false)
}

// check compares some elements of a product with sums in float64.
func check[T kernels.Float](s square, a, b []T, out []byte) error {
	return checkElements[T](fmt.Sprintf("%+v", s), out, s.n, 60, s.n, func(i, j, l int) float64 {
		at := i*s.n + l
		if s.transA {
			at = l*s.n + i
		}
		return float64(a[at]) * float64(b[l*s.n+j])
	})
}

// checkElements compares elements of a product of n x n matrices with the sums of their terms in
// float64.
func checkElements[T kernels.Float](name string, out []byte, n, elements, terms int, term func(i, j, l int) float64) error {
	got, epsilon := kernels.Elements[T](out), 0x1p-23
	if _, double := any(got).([]float64); double {
		epsilon = 0x1p-52
	}
	for k := range elements {
		i, j := k*104729%n, (k*7919+n-1)%n
		sum, abs := sums(terms, func(l int) float64 { return term(i, j, l) })
		if v := float64(got[i*n+j]); !(math.Abs(v-sum) <= epsilon*abs*(3+math.Sqrt(float64(n)))) {
			return fmt.Errorf("element (%d, %d) of %s is %v, want %v", i, j, name, v, sum)
		}
	}
	return nil
}

// sums returns the sum of terms in float64 and that of their absolute values.
func sums(terms int, term func(l int) float64) (sum, abs float64) {
	for l := range terms {
		t := term(l)
		sum += t
		abs += math.Abs(t)
	}
	return sum, abs
}

// climber times products on the GPU and keeps the operands.
type climber struct {
	p   *notebook.Page
	f32 []float32
	f64 []float64
	us  map[square]float64 // the times in float32
}

func (c *climber) time(s square, dt kernels.Dtype) float64 {
	published := notebook.Case{} // none of a transposed matrix
	if !s.transA {
		published = benchmark(s.version, s.n, dt)
	}
	us := c.p.Benchmark(fmt.Sprintf("matmul %v, %d, version %d, transA %v", dt, s.n, s.version, s.transA), published, func() float64 {
		if dt == kernels.Float64 {
			return timeProduct(c.p, s, dt, &c.f64, 6)
		}
		return timeProduct(c.p, s, dt, &c.f32, 5)
	}).Value
	if dt == kernels.Float32 {
		c.us[s] = us
	}
	return us
}

// timeProduct times a product of the numbers in memory, which grows where it must.
func timeProduct[T kernels.Float](p *notebook.Page, s square, dt kernels.Dtype, memory *[]T, seed uint32) float64 {
	count := s.n * s.n
	if len(*memory) < 2*count {
		*memory = fill[T](2*count, seed)
	}
	a, b := (*memory)[:count], (*memory)[count:2*count]
	plan := notebook.Must(s.plan(p.Target(), dt))
	return p.MeanTime(plan, [][]byte{kernels.Bytes(a), kernels.Bytes(b)}, 7, func(out []byte) error { return check(s, a, b, out) })
}

// teraflops is the rate of a product of n x n matrices that takes us.
func teraflops(n int, us float64) float64 { return 2 * math.Pow(float64(n), 3) / us / 1e6 }

// A step is a version: what is said before its source, and after.
type step struct {
	heading, before string
	sources         [][]string // a file and functions of it
	after           string
}

// show adds the heading, the texts and the sources of a step to the page.
func (s step) show(p *notebook.Page) {
	p.Heading(s.heading)
	p.Text("%s", s.before)
	for _, from := range s.sources {
		p.Source(from[0], from[1:]...)
	}
	if s.after != "" {
		p.Text("%s", s.after)
	}
}

var steps = []step{
	{"Step 1: one thread per output", `The product of two N x N matrices has N^2 outputs, each a sum of N products. One thread for each, which loads a row of A and a
		column of B: two loads from memory for one multiplication, 2 N^3 in all.`, [][]string{{"versions/matmul.cu", "naive"}},
		`The threads of a warp want the same element of A and neighbouring ones of B, so the caches serve most of it. But even the first-level cache
		cannot serve two loads for each multiplication.`},
	{"Step 2: a tile in registers", `A thread that computes V x V outputs uses each element that it loads V times: 2 N^3 / V loads. V is 8 for float32 and 4 for float64, which takes
		twice the registers.`, [][]string{{"versions/matmul.cu", "registers"}}, ``},
	{"Step 3: a tile in shared memory", `The 256 threads of a block compute L x L outputs, L = 16 V, and all their factors are the same L rows of A and L columns of B. They fetch pieces of
		these together, S elements deep, each thread striding through the piece; each takes its V + V from there: 2 N^3 / L loads from global memory, 2 N^3 / V from
		shared memory. Both factors have a piece of their own, and a thread takes b from the piece of B: with one name for both the product is A^T A.`,
		[][]string{{"versions/matmul.cu", "shared"}},
		`Fewer loads, but not yet the right ones: a warp's 32 threads fetch from 32 rows of A, which is 32 times 32 bytes of memory for 32 times 4 that are
		used at once; and their shared addresses are V apart, so that they meet in the same banks and wait for each other. Where the caches serve step 2 well, as for float64, nothing is gained.`},
	{"Step 4: coalesced, and no bank conflicts", `The same loads in another order. Neighbouring threads fetch neighbours in memory, whatever the transposes;
		rows of a piece are padded, so that a warp stores to different banks; and a thread's V rows and columns come in groups of 16 bytes which it reads at once, next to the groups
		of its neighbours.`, [][]string{{"versions/matmul.cu", "Piece", "Copy", "multiply", "coalesced"}}, ``},
	{"Step 5: double buffered", `While a piece is multiplied, the next one can be on its way: two buffers, and copies from global to shared memory that need no register and no
		waiting (cp.async, from sm_80 on). One barrier for a piece is left.`, [][]string{{"matmul_tiles.cuh", "AsyncCopy", "pipeline"}, {"versions/matmul.cu", "pipelined"}}, ``},
	{"Step 6: warp tiles", `A warp's 32 threads so far computed 2 x 16 groups of outputs, a flat strip. As a tile of 8 x 4 groups the same outputs need fewer rows and columns. For
		float64 a thread takes 8 x 8 outputs now instead of 4 x 4, which halves its loads; for float32 pieces are twice as deep. Three stages of pieces are in flight.`, [][]string{{"versions/matmul.cu", "warptiles"}}, ``},
	{"Step 7: tensor cores", `A tensor core multiplies small matrices, here 16 x 8 times 8 x 8, held in pieces by the 32 threads of a warp. For float64 that is
		the same arithmetic in other units. For float32 it takes numbers of 11 significant bits (TF32), which is not float32: so each number is
		taken apart into two, high + low, and three products make one. That keeps 22 bits of 24; the error is measured below. Each factor keeps the
		order of its memory in shared memory too, since a warp's pieces can be read from both.`,
		[][]string{{"matmul_tiles.cuh", "Kept"}, {"versions/matmul_tensor.cu", "mma", "Fragment", "accumulate", "multiply", "tensor_as"}}, ``},
}

// matrices climbs the ladder.
func matrices(p *notebook.Page) *climber {
	n := p.Timed(4096, 256)
	names := append([]string{"the op, `ops.MatMul`"}, versionsOf("MatMul")[:last]...)
	if len(names) != last+1 || len(steps) != last {
		notebook.Fail("MatMul has %d versions and %d steps here, want %d", len(names)-1, len(steps), last)
	}
	p.Heading("The product of matrices")
	p.Text(`2 N^3 operations on 2 N^2 numbers: every number is used N times, and a fast product is one that loads it few times. Seven steps, each a version of
		the op (seven more, for newer tensor cores, follow below): %s puts the third into a graph. All take float32 and float64, any sizes, both operands transposed or not, and
		batches. Rates below are for N = %d.`, "`versions.Version(3).MatMul(a, b)`", n)
	c := &climber{p: p, us: map[square]float64{}}
	us := map[kernels.Dtype][]float64{}
	tell := func(version int) {
		for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
			us[dt] = append(us[dt], c.time(square{version: version, n: n}, dt))
		}
	}
	tell(0)
	for i, s := range steps {
		s.show(p)
		tell(i + 1)
		f32, f64 := us[kernels.Float32], us[kernels.Float64]
		p.Text("float32: %s TFLOP/s, float64: %s.", figure.Number(teraflops(n, f32[i+1])), figure.Number(teraflops(n, f64[i+1])))
	}
	ladder(c, n, names, us)
	return c
}

// ladder compares the steps, with other layouts and sizes too.
func ladder(c *climber, n int, names []string, us map[kernels.Dtype][]float64) {
	p := c.p
	p.Heading("What each step gains")
	odd := n + 1
	t := figure.Table{Caption: "TFLOP/s of the product of N x N matrices; A^T B has A stored the other way round",
		Header: []string{"version", fmt.Sprintf("float32, N = %d", n), "gain", "A^T B", fmt.Sprintf("N = %d", odd), fmt.Sprintf("float64, N = %d", n), "gain"}}
	bars := figure.Bars{Title: fmt.Sprintf("Product of %d x %d matrices", n, n), Label: "TFLOP/s", Series: []figure.BarSeries{{Name: "float32", Colour: figure.Blue}, {Name: "float64", Colour: figure.Amber}}}
	order := []int{1, 2, 3, 4, 5, 6, 7, 0}
	for i, v := range order {
		f32, f64 := us[kernels.Float32], us[kernels.Float64]
		trans := c.time(square{version: v, n: n, transA: true}, kernels.Float32)
		uneven := c.time(square{version: v, n: odd}, kernels.Float32)
		name, gains := fmt.Sprintf("%d: %s", v, names[v]), [2]string{"", ""}
		if v == 0 {
			name = names[v]
		} else if i > 0 {
			gains = [2]string{gain(f32[v-1], f32[v]), gain(f64[v-1], f64[v])}
		}
		rates := [4]float64{teraflops(n, f32[v]), teraflops(n, trans), teraflops(odd, uneven), teraflops(n, f64[v])}
		t.Add(name, rates[0], gains[0], rates[1], rates[2], rates[3], gains[1])
		bars.Add(strings.ReplaceAll(name, "`", ""), rates[0], rates[3])
	}
	side := p.Size(2048, 1024, 128) // a CPU takes a second
	t.Add(fmt.Sprintf("CPU: the Go body, N = %d", side), onHost[float32](p, side, kernels.Float32), "", "", "", onHost[float64](p, side, kernels.Float64), "")
	p.Table(t)
	p.Text("The last row is the CPU of this machine, by the Go body of all these kernels: the BLAS that Gorgonia uses, on all cores.")
	p.Figure("ladder", "The steps and the op itself; longer is better.", bars)

	// Other sizes: the steps need work for all multiprocessors.
	most := p.Timed(8192, 512)
	ch := figure.Chart{Title: "Product of N x N float32 matrices", XLabel: "N", YLabel: "TFLOP/s", LogX: true, Zero: true}
	colours := []color.RGBA{figure.Ink, figure.Red, figure.Amber, figure.Muted, figure.Green, figure.Blue}
	for i, v := range []int{0, 1, 3, 4, 5, 7} {
		s := figure.Series{Name: []string{"the op", "1: one thread", "3: shared", "4: coalesced", "5: buffered", "7: tensor cores"}[i], Colour: colours[i]}
		for size := 128; size <= most; size *= 2 {
			time := us[kernels.Float32][v]
			if size != n {
				time = c.time(square{version: v, n: size}, kernels.Float32)
			}
			s.X, s.Y = append(s.X, float64(size)), append(s.Y, teraflops(size, time))
		}
		ch.Series = append(ch.Series, s)
	}
	p.Figure("sizes", "Small products leave most multiprocessors without a tile. The op cuts their sums in parts, which the versions do not.", ch)
}

// onHost returns the rate in TFLOP/s of the Go body, which is that of all versions, on
// n x n matrices.
func onHost[T kernels.Float](p *notebook.Page, n int, dt kernels.Dtype) float64 {
	a, b := fill[T](n*n, 7), fill[T](n*n, 8)
	plan := notebook.Must(square{version: last, n: n}.plan(kernels.HostDevice(), dt))
	out := kernels.Bytes(make([]T, n*n))
	time := p.Time(fmt.Sprintf("matmul, host, %v", dt), func() { notebook.Check(plan.Run([][]byte{kernels.Bytes(a), kernels.Bytes(b)}, out, nil)) })
	notebook.Check(check(square{n: n}, a, b, out))
	return teraflops(n, 1000*time.Value)
}

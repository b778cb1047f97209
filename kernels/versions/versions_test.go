package versions

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/window"
)

// onHost runs a plan of one output element type.
func onHost[T kernels.Float](t *testing.T, p *kernels.Plan, out []T, inputs ...[]T) {
	t.Helper()
	in := make([][]byte, len(inputs))
	for i, x := range inputs {
		in[i] = kernels.Bytes(x)
	}
	if err := p.Run(in, kernels.Bytes(out), nil); err != nil {
		t.Fatal(err)
	}
}

// ramp is n numbers, no two alike, whose sums are exact.
func ramp(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(i%997) + float64(i)/1024
	}
	return x
}

// The first step alone leaves sums that add up to the result of the whole plan, on
// grids that are full and on grids that are not.
func TestPartials(t *testing.T) {
	add := func(part []float64) (sum float64) {
		for _, v := range part {
			sum += v
		}
		return sum
	}
	for _, shape := range [][]int{{1}, {4097}, {3, 11}, {700, 1300}, {40, 5000}, {5000, 40}} {
		n := int(kernels.Count(shape))
		x := ramp(n)
		want := add(x)
		for v := 5; v < len(sumVersions); v++ {
			if v == 9 && len(shape) != 2 {
				continue
			}
			whole, err := Sum(kernels.HostDevice(), kernels.Float64, v, shape)
			if err != nil {
				t.Fatal(err)
			}
			first, err := SumPartials(kernels.Float64, v, shape)
			if err != nil {
				t.Fatal(err)
			}
			out, part := make([]float64, 1), make([]float64, first.Out/8)
			onHost(t, whole, out, x)
			onHost(t, first, part, x)
			if out[0] != want || add(part) != want {
				t.Errorf("version %d of %v: %v and, from %d partial sums, %v, want %v", v, shape, out[0], len(part), add(part), want)
			}
			if len(part) != first.Launches[0].Blocks() || len(part) > 64*64 {
				t.Errorf("version %d of %v: %d partial sums of %d blocks", v, shape, len(part), first.Launches[0].Blocks())
			}
		}
	}
	x := ramp(70000)
	p := DotPartials(kernels.Float64, int64(len(x)))
	part, ones := make([]float64, p.Out/8), slices.Repeat([]float64{1}, len(x))
	onHost(t, p, part, x, ones)
	if got, want := add(part), add(x); got != want || len(part) != 274 {
		t.Errorf("dot: %v from %d partial sums, want %v from 274", got, len(part), want)
	}
}

func TestVersionErrors(t *testing.T) {
	for want, f := range map[string]func() (*kernels.Plan, error){
		"want 1 to 9":            func() (*kernels.Plan, error) { return Sum(kernels.HostDevice(), kernels.Float32, 10, []int{3}) },
		"got version 0":          func() (*kernels.Plan, error) { return Sum(kernels.HostDevice(), kernels.Float32, 0, []int{3}) },
		"want a matrix":          func() (*kernels.Plan, error) { return Sum(kernels.HostDevice(), kernels.Float32, 9, []int{3}) },
		"leaves no partial sums": func() (*kernels.Plan, error) { return SumPartials(kernels.Float32, 4, []int{3}) },
		"got version 10, want 1": func() (*kernels.Plan, error) { return SumPartials(kernels.Float32, 10, []int{3}) },
		"add: got version 3":     func() (*kernels.Plan, error) { return Add(kernels.HostDevice(), kernels.Float32, 3, 1) },
		"got mode Full": func() (*kernels.Plan, error) {
			return WindowSum(kernels.HostDevice(), kernels.Float32, 1, 1, 3, 1, window.WindowFull)
		},
		"got version 4, want 1 t": func() (*kernels.Plan, error) { return Dot(kernels.HostDevice(), kernels.Float32, 4, 3) },
	} {
		if p, err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v and error %v, want %q", p, err, want)
		}
	}
}

// offByOneTree is treeSum with the slip of a well-known listing: s[tid + 1]
// where the tree needs s[tid + half]. In every step a thread adds its neighbour,
// so that of 256 values the first nine count, the k-th C(8, k) times.
func offByOneTree(s []float64) float64 {
	for half := len(s) / 2; half > 0; half /= 2 {
		for tid := range half { // in order: s[tid+1] is still that of the step before
			s[tid] += s[tid+1]
		}
	}
	return s[0]
}

// The slip cannot be seen on constant input, on which the listing is tried, and
// is far off on any other: this is why the suite draws its inputs.
func TestOffByOneTree(t *testing.T) {
	const n = 640 * 256 * 4
	dot := func(tree func([]float64) float64, a, b []float64) (sum float64) {
		p := DotPartials(kernels.Float64, n)
		p.Launches[0].Kernel = &kernels.Kernel{Entry: "dot_off_by_one", Body: func(c kernels.Call) {
			partsBody(c, dotTerms[float64](c), tree)
		}}
		part := make([]float64, p.Out/8)
		onHost(t, p, part, a, b)
		for _, v := range part {
			sum += v
		}
		return sum
	}
	ones, shares, varied := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range n {
		ones[i], shares[i], varied[i] = 1, 1./n, math.Cos(float64(i))+float64(i%256)/64
	}
	exact := 0.0
	for _, v := range varied {
		exact += v
	}
	for _, c := range []struct {
		name string
		b    []float64
		want float64
		hid  bool // the slip does not show
	}{{"constant", shares, 1, true}, {"varied", varied, exact, false}} {
		right, wrong := dot(treeSum, ones, c.b), dot(offByOneTree, ones, c.b)
		if math.Abs(right-c.want) > 1e-12*math.Abs(c.want) {
			t.Errorf("%s: s[tid+half] gives %v, want %v", c.name, right, c.want)
		}
		if hid := math.Abs(wrong-c.want) < 1e-6*math.Abs(c.want); hid != c.hid {
			t.Errorf("%s: s[tid+1] gives %v, the sum is %v: seen to be wrong is %v, want %v", c.name, wrong, c.want, !hid, !c.hid)
		}
	}
	s, binomial, want := make([]float64, 256), 1.0, 0.0
	for k := range s {
		s[k] = float64(k*k + 3)
		want += binomial * s[k]
		binomial = binomial * float64(8-k) / float64(k+1)
	}
	if got := offByOneTree(s); got != want {
		t.Errorf("s[tid+1] over 256 values gives %v, want the first nine by C(8, k): %v", got, want)
	}
}

// swappedStrides is the body of version 9 with the slip of a well-known listing:
// rows step by the x size of the grid and columns by its y size.
func swappedStrides(c kernels.Call) {
	args := kernels.Args[sum2dArgs](c)
	in, out, rows, cols := kernels.Slice[float64](c, args.In), kernels.Slice[float64](c, args.Out), int(args.Rows), int(args.Cols)
	for b := range out {
		s := make([]float64, c.Block[0]*c.Block[1])
		for tid := range s {
			top, left := b/c.Grid[0]*c.Block[1]+tid/c.Block[0], b%c.Grid[0]*c.Block[0]+tid%c.Block[0]
			for y := top; y < rows; y += c.Grid[0] * c.Block[0] {
				for x := left; x < cols; x += c.Grid[1] * c.Block[1] {
					s[tid] += in[y*cols+x]
				}
			}
		}
		out[b] = treeSum(s)
	}
}

// The slip cannot be seen on a square grid, on which the listing is tried, and
// leaves rows out and counts columns twice on any other.
func TestSwappedStrides(t *testing.T) {
	const rows, cols = 300, 500
	x := ramp(rows * cols)
	want := naiveSum(x)
	for _, c := range []struct {
		grid [3]int
		hid  bool // the slip does not show
	}{{[3]int{4, 4, 1}, true}, {[3]int{4, 2, 1}, false}, {[3]int{2, 5, 1}, false}} {
		sum := func(slip bool) float64 {
			p, err := SumPartials(kernels.Float64, 9, []int{rows, cols})
			if err != nil {
				t.Fatal(err)
			}
			l := &p.Launches[0]
			l.Grid = c.grid
			if slip {
				l.Kernel = &kernels.Kernel{Entry: "sum_swapped_strides", Body: swappedStrides}
			}
			p.Out = 8 * int64(l.Blocks())
			part := make([]float64, l.Blocks())
			onHost(t, p, part, x)
			return naiveSum(part)
		}
		if right := sum(false); right != want {
			t.Errorf("grid %v: the sum is %v, want %v", c.grid, right, want)
		}
		if wrong := sum(true); (wrong == want) != c.hid {
			t.Errorf("grid %v: with the slip the sum is %v, without %v: hidden is %v, want %v", c.grid, wrong, want, !c.hid, c.hid)
		}
	}
}

// The images belong to the sources.
func TestImages(t *testing.T) {
	if err := kernels.Check(library); err != nil {
		t.Errorf("%v: run `make images`", err)
	}
}

// A plan never asks for more blocks than a launch can have, and versions that do
// not exist are errors.
func TestGrid(t *testing.T) {
	dev := kernels.Device{Name: "test", Major: 9, SMs: 132, SharedOptin: 227 << 10}
	if _, err := MatMul(kernels.Float32, 1, 1, 1<<20, 1<<20, 1, false, false); err == nil || !strings.Contains(err.Error(), "blocks") {
		t.Errorf("2^40 outputs by one thread each: %v", err)
	}
	if _, err := Add(dev, kernels.Float32, 1, 1<<41); err == nil || !strings.Contains(err.Error(), "blocks") {
		t.Errorf("2^41 elements by one thread each: %v", err)
	}
	for v := 1; v <= 2; v++ {
		if _, err := WindowSum(dev, kernels.Float32, v, 1, 1<<41, 2, window.WindowValid); err == nil || !strings.Contains(err.Error(), "blocks") {
			t.Errorf("2^41 windows by version %d: %v", v, err)
		}
		p, err := WindowSum(dev, kernels.Float64, v, 3, 1000, 10000, window.WindowSame)
		if err != nil || p.Launches[0].Shared > 48<<10 || p.Launches[0].Grid[0] > math.MaxInt32 {
			t.Errorf("wide windows by version %d: %v, %v", v, p, err)
		}
	}
}

// A device without images of its own runs those of its major version, or PTX.
func TestTargets(t *testing.T) {
	for _, c := range []struct {
		major, minor int
		target       string
	}{{7, 5, "ptx"}, {8, 0, "sm_80"}, {8, 9, "sm_80"}, {9, 0, "sm_90a"}, {10, 3, "ptx"}, {12, 0, "ptx"}} {
		if code, err := library.Image("add").Code(c.major, c.minor); err != nil || code.Target != c.target || len(code.Text) == 0 {
			t.Errorf("%d.%d gets %d bytes for %s, %v, want %s", c.major, c.minor, len(code.Text), code.Target, err, c.target)
		}
	}
}

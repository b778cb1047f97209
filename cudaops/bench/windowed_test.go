package bench

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/window"
)

// slid are images and the windows that slide over them.
type slid struct {
	images, channels int
	window.Windows
}

// visit calls f for every element of every window of a plane, in order: that of window
// (y, x), at (i, j) in it, is element at of the plane, -1 outside.
func (s slid) visit(f func(y, x, i, j, at int)) {
	v, h := s.Rows, s.Columns
	for y := range v.Out() {
		for x := range h.Out() {
			for i := range v.Size {
				for j := range h.Size {
					row, column, at := y*v.Stride+i*v.Dilation-v.Before, x*h.Stride+j*h.Dilation-h.Before, -1
					if row >= 0 && row < v.In && column >= 0 && column < h.In {
						at = row*h.In + column
					}
					f(y, x, i, j, at)
				}
			}
		}
	}
}

// reference computes what the plans compute, by the plainest loops, in T: the columns of
// x, the sums of columns, the maxima and averages of x, and the derivatives of these at x
// by the derivatives d.
type reference[T kernels.Float] struct{ columns, sums, most, average, dMost, dAverage []T }

func referenceOf[T kernels.Float](s slid, x, columns, d []T, div T) (r reference[T]) {
	planes, n, windows, size := s.images*s.channels, s.Rows.In*s.Columns.In, s.Rows.Out()*s.Columns.Out(), s.Rows.Size*s.Columns.Size
	r.columns, r.sums = make([]T, planes*windows*size), make([]T, planes*n)
	r.most, r.average, r.dMost, r.dAverage = make([]T, planes*windows), make([]T, planes*windows), make([]T, planes*n), make([]T, planes*n)
	most := math.MaxFloat64
	least := -T(most)
	if math.IsInf(float64(least), -1) {
		least = -T(math.MaxFloat32)
	}
	for p := range planes {
		image, c := p/s.channels, p%s.channels
		first := make([]int, windows)
		for o := range windows {
			r.most[p*windows+o], first[o] = least, -1
		}
		s.visit(func(y, x0, i, j, at int) {
			o := y*s.Columns.Out() + x0
			k := ((image*windows+o)*s.channels+c)*size + i*s.Columns.Size + j
			if at < 0 {
				return
			}
			e := x[p*n+at]
			r.columns[k] = e
			r.sums[p*n+at] += columns[k]
			r.average[p*windows+o] += e
			r.dAverage[p*n+at] += d[p*windows+o]
			if e > r.most[p*windows+o] {
				r.most[p*windows+o], first[o] = e, at
			}
		})
		for o, at := range first {
			r.average[p*windows+o] /= div
			if at >= 0 {
				r.dMost[p*n+at] += d[p*windows+o]
			}
		}
		for i := range n {
			r.dAverage[p*n+i] /= div
		}
	}
	return r
}

// drawSlid draws windows of any kind: small ones with everything odd, and larger ones that
// take several tiles, channels and rows of both.
func drawSlid(r *rand.Rand, large bool) slid {
	axis := func(most int) (a window.WindowAxis) {
		for a.Size == 0 || a.Out() == 0 {
			a = window.WindowAxis{In: 1 + r.IntN(most), Size: 1 + r.IntN(5), Stride: 1 + r.IntN(3), Dilation: 1 + r.IntN(3), Before: r.IntN(4), After: r.IntN(4)}
			if r.IntN(2) == 0 {
				a.Size, a.Dilation = 2+r.IntN(2), 1
			}
		}
		return a
	}
	s := slid{1 + r.IntN(3), 1 + r.IntN(5), window.Windows{Rows: axis(9), Columns: axis(9)}}
	if large {
		s = slid{1 + r.IntN(2), 1 + r.IntN(90), window.Windows{Rows: axis(40), Columns: axis(120)}}
	}
	if r.IntN(2) == 0 { // square ones have kernels of their own
		s.Rows.Size, s.Rows.Dilation, s.Rows.Stride = s.Columns.Size, s.Columns.Dilation, s.Columns.Stride
		if s.Rows.Out() == 0 {
			s.Rows.In += s.Rows.Size * s.Rows.Dilation
		}
	}
	return s
}

// specialSlid are windows that random cases rarely cover.
func specialSlid() []slid {
	axis := func(in, size, stride, pad int) window.WindowAxis {
		return window.WindowAxis{In: in, Size: size, Stride: stride, Dilation: 1, Before: pad}
	}
	return []slid{
		{1, 2, window.Windows{Rows: axis(3, 2, 1, 0), Columns: axis(700, 600, 50, 9)}},    // a kernel wider than a block, by one channel at a time
		{1, 1, window.Windows{Rows: axis(100, 70, 1, 3), Columns: axis(90, 71, 1, 0)}},    // more windows around an element than a tile holds
		{1, 2, window.Windows{Rows: axis(90, 3, 1, 1), Columns: axis(70, 3, 1, 1)}},       // tiles of rows
		{2, 5, window.Windows{Rows: axis(7, 3, 1, 1), Columns: axis(30, 3, 1, 0)}},        // a warp's columns
		{2, 40, window.Windows{Rows: axis(11, 3, 1, 0), Columns: axis(31, 3, 1, 2)}},      // one more
		{1, 3, window.Windows{Rows: axis(20, 3, 1, 1), Columns: axis(58, 3, 1, 1)}},       // columns of two warps
		{2, 1, window.Windows{Rows: axis(9, 3, 2, 1), Columns: axis(5001, 3, 2, 1)}},      // and of columns
		{2, 37, window.Windows{Rows: axis(14, 3, 1, 1), Columns: axis(14, 3, 1, 1)}},      // as in networks: several planes at once
		{1, 40, window.Windows{Rows: axis(28, 2, 2, 0), Columns: axis(27, 2, 2, 0)}},      // likewise
		{1, 3, window.Windows{Rows: axis(90, 7, 2, 3), Columns: axis(90, 7, 2, 3)}},       // likewise
		{1, 130, window.Windows{Rows: axis(8, 1, 1, 0), Columns: axis(9, 1, 1, 0)}},       // likewise
		{1, 4, window.Windows{Rows: axis(200, 90, 90, 0), Columns: axis(40, 40, 90, 30)}}, // each element in one window of a great size
		{1, 1, window.Windows{Rows: axis(60, 7, 1, 3), Columns: axis(140, 5, 1, 2)}},      // the greatest of parts of rows, tiles of both
		{1, 90, window.Windows{Rows: axis(13, 5, 1, 2), Columns: axis(13, 6, 2, 2)}},      // and several planes
	}
}

// Plans on windows compute the reference's bits, on every backend.
func TestWindows(t *testing.T) {
	r := random(t)
	draws := 60
	if testing.Short() {
		draws = 10
	}
	run := map[string]func(p *kernels.Plan, in [][]byte, out []byte) error{
		"host": func(p *kernels.Plan, in [][]byte, out []byte) error {
			return runGuarded(new(exec.HostBackend), p, in, out)
		},
	}
	devices, err := cudaops.Devices()
	dev := kernels.HostDevice()
	if err == nil {
		run["GPU"] = func(p *kernels.Plan, in [][]byte, out []byte) error { return Run(0, p, in, out) }
		dev = devices[0].Device
	} else if testutil.Required("GPU") {
		t.Fatalf("STHENO_REQUIRE_GPU=1, but: %v", err)
	}
	for i := range draws {
		s := drawSlid(r, i%6 == 5)
		if special := specialSlid(); i < len(special) {
			s = special[i]
		}
		for name, run := range run {
			checkWindows[float32](t, name, run, dev, kernels.Float32, s, r)
			checkWindows[float64](t, name, run, dev, kernels.Float64, s, r)
		}
	}
}

func checkWindows[T kernels.Float](t *testing.T, on string, run func(*kernels.Plan, [][]byte, []byte) error, dev kernels.Device, dt kernels.Dtype, s slid, r *rand.Rand) {
	t.Helper()
	planes, n, windows := s.images*s.channels, s.Rows.In*s.Columns.In, s.Rows.Out()*s.Columns.Out()
	special := []T{T(math.Inf(1)), T(math.Inf(-1)), T(math.NaN()), 0, 1, 1, -1}
	few, odd := r.IntN(3) == 0, r.IntN(2) == 0 // equal elements, and numbers that are none
	draw := func(n int, odd bool) []T {
		x := make([]T, n)
		for i := range x {
			if x[i] = T(r.NormFloat64()); few {
				x[i] = T(r.IntN(3))
			}
			if odd && r.IntN(10) == 0 {
				x[i] = special[r.IntN(len(special))]
			}
		}
		return x
	}
	x, columns, d := draw(planes*n, odd), draw(planes*windows*s.Rows.Size*s.Columns.Size, false), draw(planes*windows, false)
	div := T(1 + r.IntN(9))
	want := referenceOf(s, x, columns, d, div)
	check := func(p *kernels.Plan, err error, want []T, in ...[]T) {
		t.Helper()
		testutil.Do(t, err)
		var inputs [][]byte
		for _, v := range in {
			inputs = append(inputs, kernels.Bytes(v))
		}
		got := make([]T, len(want))
		testutil.Do(t, run(p, inputs, kernels.Bytes(got)))
		for i := range want {
			if got[i] != want[i] && !(got[i] != got[i] && want[i] != want[i]) {
				t.Fatalf("%s: element %d is %v, want %v: %v", on, i, got[i], want[i], p)
			}
		}
	}
	p, err := window.Im2Col(dev, dt, int64(s.images), int64(s.channels), s.Windows)
	check(p, err, want.columns, x)
	p, err = window.Col2Im(dev, dt, int64(s.images), int64(s.channels), s.Windows)
	check(p, err, want.sums, columns)
	if s.Rows.Dilation > 1 || s.Columns.Dilation > 1 {
		return
	}
	p, err = window.MaxPool(dev, dt, int64(planes), s.Windows)
	check(p, err, want.most, x)
	p, err = window.MaxPoolDiff(dev, dt, int64(planes), s.Windows)
	check(p, err, want.dMost, x, d)
	p, err = window.AveragePool(dev, dt, int64(planes), s.Windows, float64(div))
	check(p, err, want.average, x)
	p, err = window.AveragePoolDiff(dev, dt, int64(planes), s.Windows, float64(div))
	check(p, err, want.dAverage, d)
}

// The error about windows that kernels cannot take names them.
func TestWindowsBad(t *testing.T) {
	good := window.WindowAxis{In: 5, Size: 3, Stride: 1, Dilation: 1}
	with := func(f func(*window.WindowAxis)) window.Windows {
		a := good
		f(&a)
		return window.Windows{Rows: good, Columns: a}
	}
	dev := kernels.HostDevice()
	for name, w := range map[string]window.Windows{
		"no window":   with(func(a *window.WindowAxis) { a.Size = 6 }),
		"no stride":   with(func(a *window.WindowAxis) { a.Stride = 0 }),
		"no dilation": with(func(a *window.WindowAxis) { a.Dilation = 0 }),
		"no size":     with(func(a *window.WindowAxis) { a.Size = 0 }),
		"inside":      with(func(a *window.WindowAxis) { a.Before = -1 }),
		"no elements": with(func(a *window.WindowAxis) { a.In, a.Before = 0, 9 }),
		"too large":   with(func(a *window.WindowAxis) { a.In = 1 << 30 }),
	} {
		plans := map[string]error{}
		_, plans["im2col"] = window.Im2Col(dev, kernels.Float32, 1, 1, w)
		_, plans["col2im"] = window.Col2Im(dev, kernels.Float32, 1, 1, w)
		_, plans["max"] = window.MaxPool(dev, kernels.Float32, 1, w)
		_, plans["max, diff"] = window.MaxPoolDiff(dev, kernels.Float32, 1, w)
		_, plans["average"] = window.AveragePool(dev, kernels.Float32, 1, w, 1)
		_, plans["average, diff"] = window.AveragePoolDiff(dev, kernels.Float32, 1, w, 1)
		for plan, err := range plans {
			if err == nil {
				t.Errorf("%s: no error of %s", name, plan)
			}
		}
	}
	dilated := with(func(a *window.WindowAxis) { a.Dilation = 2 })
	if _, err := window.MaxPool(dev, kernels.Float32, 1, dilated); err == nil {
		t.Error("no error for a pool with dilation")
	}
	wide := with(func(a *window.WindowAxis) { a.Dilation, a.In = 1<<14, 1<<16 })
	if _, err := window.Im2Col(dev, kernels.Float32, 1, 1, wide); err == nil {
		t.Error("no error for windows that do not fit into shared memory")
	}
	if _, err := window.Im2Col(dev, kernels.Float32, 1, 1<<30, window.Windows{Rows: good, Columns: good}); err == nil {
		t.Error("no error for a window of more than 2^30 elements")
	}
	p, err := window.Im2Col(dev, kernels.Float32, 0, 3, window.Windows{Rows: good, Columns: good})
	if testutil.Do(t, err); p.Out != 0 || len(p.Launches) != 0 {
		t.Errorf("no images give %v", p)
	}
}

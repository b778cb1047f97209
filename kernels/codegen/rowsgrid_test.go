package codegen

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// How rows are shared among threads on an H200, and which are split.
func TestRowGrid(t *testing.T) {
	dev := kernels.Device{Major: 9, SMs: 132, SharedOptin: 232448}
	for _, c := range []struct {
		shape, axes []int
		want        rowGrid
	}{
		{[]int{128, 10}, []int{1}, rowGrid{width: 1, threadsPerRow: 16, rowsPerBlock: 16, splits: 1, colsPerSplit: 10, small: true}},
		{[]int{23}, []int{0}, rowGrid{width: 1, threadsPerRow: 32, rowsPerBlock: 8, splits: 1, colsPerSplit: 23, small: true}},
		{[]int{1000}, []int{0}, rowGrid{width: 4, threadsPerRow: 256, rowsPerBlock: 1, splits: 1, colsPerSplit: 1000, small: true}},
		{[]int{100, 512}, []int{1}, rowGrid{width: 4, threadsPerRow: 256, rowsPerBlock: 1, splits: 1, colsPerSplit: 512, small: true}},
		{[]int{7, 300}, []int{0}, rowGrid{stridedAxis: true, width: 4, threadsPerRow: 16, rowsPerBlock: 16, splits: 1, colsPerSplit: 7, small: true}},
		{[]int{100, 10}, []int{0}, rowGrid{stridedAxis: true, width: 1, threadsPerRow: 64, rowsPerBlock: 16, splits: 1, colsPerSplit: 100, small: true}},
		{[]int{16384, 128}, []int{1}, rowGrid{width: 4, threadsPerRow: 16, rowsPerBlock: 16, splits: 1, colsPerSplit: 128}},
		{[]int{16384, 1000}, []int{1}, rowGrid{width: 4, threadsPerRow: 64, rowsPerBlock: 1, splits: 1, colsPerSplit: 1000}},
		{[]int{16384, 1001}, []int{1}, rowGrid{width: 1, threadsPerRow: 64, rowsPerBlock: 1, splits: 1, colsPerSplit: 1001}},
		{[]int{16384, 4096}, []int{1}, rowGrid{width: 4, threadsPerRow: 128, rowsPerBlock: 1, splits: 1, colsPerSplit: 4096}},
		{[]int{16384, 32768}, []int{1}, rowGrid{width: 4, threadsPerRow: 512, rowsPerBlock: 1, splits: 1, colsPerSplit: 32768}},
		{[]int{1 << 28}, []int{0}, rowGrid{width: 4, threadsPerRow: 256, rowsPerBlock: 1, splits: 1053, colsPerSplit: 254976}},
		{[]int{60, 100_003}, []int{1}, rowGrid{width: 1, threadsPerRow: 256, rowsPerBlock: 1, splits: 1, colsPerSplit: 100_003, cluster: 8, colsPerBlock: 12501}},
		{[]int{16, 300_003}, []int{1}, rowGrid{width: 1, threadsPerRow: 256, rowsPerBlock: 1, splits: 36, colsPerSplit: 8448}},
		{[]int{46, 31622}, []int{1}, rowGrid{width: 1, threadsPerRow: 512, rowsPerBlock: 1, splits: 1, colsPerSplit: 31622, cluster: 4, colsPerBlock: 7906}},
		{[]int{256, 64, 64, 64}, []int{0, 2, 3}, rowGrid{width: 4, threadsPerRow: 256, rowsPerBlock: 1, splits: 16, colsPerSplit: 65536}},
		{[]int{256, 1_000_000}, []int{1}, rowGrid{width: 4, threadsPerRow: 256, rowsPerBlock: 1, splits: 4, colsPerSplit: 250_880}},
		{[]int{1000, 1_000_000}, []int{1}, rowGrid{width: 4, threadsPerRow: 1024, rowsPerBlock: 1, splits: 1, colsPerSplit: 1_000_000, cluster: 8, colsPerBlock: 125_000}},
		{[]int{64, 256, 56, 56}, []int{0, 2, 3}, rowGrid{width: 4, threadsPerRow: 512, rowsPerBlock: 1, splits: 1, colsPerSplit: 200704, cluster: 8, colsPerBlock: 25088}},
		{[]int{16384, 100_003}, []int{1}, rowGrid{width: 1, threadsPerRow: 256, rowsPerBlock: 1, splits: 1, colsPerSplit: 100_003, cluster: 8, colsPerBlock: 12501}},
		{[]int{16384, 32772}, []int{1}, rowGrid{width: 4, threadsPerRow: 256, rowsPerBlock: 1, splits: 1, colsPerSplit: 32772, cluster: 4, colsPerBlock: 8196}},
		{[]int{16384, 4096}, []int{0}, rowGrid{stridedAxis: true, width: 4, threadsPerRow: 8, rowsPerBlock: 32, splits: 16, colsPerSplit: 1024}},
		{[]int{1 << 20, 64}, []int{0}, rowGrid{stridedAxis: true, width: 4, threadsPerRow: 16, rowsPerBlock: 16, splits: 525, colsPerSplit: 2000}},
		{[]int{64, 1000, 49}, []int{1}, rowGrid{stridedAxis: true, width: 1, threadsPerRow: 16, rowsPerBlock: 16, splits: 1, colsPerSplit: 1000}},
		{[]int{64, 3, 224, 224}, []int{1}, rowGrid{stridedAxis: true, width: 4, threadsPerRow: 1, rowsPerBlock: 256, splits: 1, colsPerSplit: 3}},
	} {
		if got := newRowGrid(dev, c.shape, c.axes); got != c.want {
			t.Errorf("%v over %v: got %+v, want %+v", c.shape, c.axes, got, c.want)
		}
	}
}

// What holds of all grids, on devices of any size.
func TestRowGridDrawn(t *testing.T) {
	r := testutil.Random(t)
	for range 20_000 {
		var shape, axes []int
		for a := range 1 + r.IntN(4) {
			shape = append(shape, 1+r.IntN(1<<r.IntN(13)))
			if r.IntN(2) == 0 {
				axes = append(axes, a)
			}
		}
		if kernels.Count(shape) > 1<<40 {
			continue
		}
		dev := kernels.Device{Major: r.IntN(2) * 9, SMs: 1 + r.IntN(200)}
		g := newRowGrid(dev, shape, axes)
		c := call{shape: shape, axes: axes}
		columns := kernels.Count(shape) / c.rows()
		threads := g.threadsPerRow * g.rowsPerBlock
		switch {
		case threads < 64 && g.threadsPerRow > 32 || threads < 128 && g.threadsPerRow <= 32 || threads > 1024 || threads%32 != 0:
			t.Errorf("%v over %v: got blocks of %d threads; %+v", shape, axes, threads, g)
		case !g.stridedAxis && g.threadsPerRow > 32 && (g.threadsPerRow%32 != 0 || g.rowsPerBlock != 1), (g.stridedAxis || g.threadsPerRow <= 32) && (arith.Pow2(g.threadsPerRow) != g.threadsPerRow || arith.Pow2(g.rowsPerBlock) != g.rowsPerBlock):
			t.Errorf("%v over %v: got %+v, want warps or groups of a power of two", shape, axes, g)
		case g.splits < 1 || g.splits > 1<<16-1 || g.colsPerSplit*g.splits < columns || g.colsPerSplit*(g.splits-1) >= columns:
			t.Errorf("%v over %v: got %+v, want splits of %d columns", shape, axes, g, columns)
		case g.splits > 1 && g.colsPerSplit%g.colStride() != 0:
			t.Errorf("%v over %v: got %+v, want splits of whole vectors of all threads", shape, axes, g)
		case g.cluster > 0 && (dev.Major < 9 || g.splits > 1 || g.cluster != arith.Pow2(g.cluster) || g.cluster > 8 || g.colsPerBlock%g.width != 0 || g.colsPerBlock*g.cluster < columns || g.colsPerBlock*(g.cluster-1) >= columns):
			t.Errorf("%v over %v: got %+v, want clusters that share %d columns", shape, axes, g, columns)
		}
	}
}

// A function that reads a row again splits it into shares, one for each block of a cluster. A function
// that needs only a row's sums uses the fewest blocks that fill the device, each with several shares.
func TestRowsWalk(t *testing.T) {
	functions, err := exprtest.RowFunctions(kernels.Float32)
	if err != nil {
		t.Fatal(err)
	}
	softmax, sum := functions[0], functions[5]
	for _, c := range []struct {
		shape, axes          []int
		sms                  int
		shares               int // of a row
		blocks, walk, shared int // of a sum: blocks of the grid, shares of each, blocks of a cluster
	}{
		{[]int{64, 256, 56, 56}, []int{0, 2, 3}, 132, 8, 256, 8, 0},
		{[]int{100, 400_000}, []int{1}, 132, 8, 200, 4, 2},
		{[]int{2048, 65536}, []int{1}, 132, 4, 2048, 4, 0},
		{[]int{67, 65536}, []int{1}, 132, 4, 268, 0, 4},
		{[]int{2, 400_003}, []int{1}, 1, 8, 2, 8, 0},
	} {
		dev := kernels.Device{Major: 9, SMs: c.sms, SharedOptin: 232448}
		s := exprtest.RowShape{Shape: c.shape, Axes: c.axes}
		for _, f := range []exprtest.RowFunction{softmax, sum} {
			p, err := rowsOf(dev, f, s)
			if err != nil {
				t.Fatal(err)
			}
			if err := checkLaunches(p); err != nil {
				t.Error(err)
			}
			rows := int(kernels.Count(c.shape) / kernels.Count(pick(c.shape, c.axes)))
			blocks, walk, shared := rows*c.shares, 0, c.shares
			if f.Name == "sum" {
				blocks, walk, shared = c.blocks, c.walk, c.shared
			}
			l := p.Launches[0]
			layout := l.Kernel.Image.(image).layout
			if l.Grid[0] != blocks || layout.sharesPerBlock != walk || layout.cluster != shared {
				t.Errorf("%s over %v of %v, %d multiprocessors: got %d blocks, each with %d shares, in clusters of %d, want %d, %d, %d", f.Name, c.axes, c.shape, c.sms, l.Grid[0], layout.sharesPerBlock, layout.cluster, blocks, walk, shared)
			}
		}
	}
}

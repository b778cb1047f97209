package versions

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

var (
	rippleShared = library.Pair("ripple", "ripple_shared", rippleSharedBody[float32], rippleSharedBody[float64])
	rippleRacy   = library.Pair("ripple", "ripple_racy", rippleRacyBody[float32], rippleRacyBody[float64])
)

type rippleArgs struct{ Out kernels.Ref }

// RippleTile is the side of a tile of [Ripple] in elements.
const RippleTile = 16

// Ripple plans a picture without input, of columns x rows tiles (at least one, at most 65535 rows) of 16 x 16 elements: each tile is turned by 180
// degrees through shared memory.
//
//	out[16 by + ty][16 bx + tx] = amplitude(16 bx + 15 - tx, 16 by + 15 - ty)
//	amplitude(ix, iy) = (1 + sin(2 pi (ix - 64) / 256)) (1 + sin(2 pi (iy - 64) / 256))
func Ripple(dt kernels.Dtype, columns, rows int) *kernels.Plan {
	return ripplePlan("ripple", rippleShared[dt], dt, columns, rows)
}

// RippleRacy is [Ripple] with the barrier between writing and reading shared memory left out, to show why it is there. Its output is WRONG ON PURPOSE
// and differs from run to run: an element is right, or whatever the tile held before. The Go body runs the warps of a block one after the other, as a
// GPU may.
func RippleRacy(dt kernels.Dtype, columns, rows int) *kernels.Plan {
	return ripplePlan("ripple_racy", rippleRacy[dt], dt, columns, rows)
}

func ripplePlan(name string, k *kernels.Kernel, dt kernels.Dtype, columns, rows int) *kernels.Plan {
	n := int64(columns) * int64(rows) * RippleTile * RippleTile
	return &kernels.Plan{Op: fmt.Sprintf("%s_%v(%d x %d)", name, dt, rows*RippleTile, columns*RippleTile), Out: n * dt.Size(), Flops: 7 * n,
		Launches: []kernels.Launch{{Kernel: k, Grid: [3]int{columns, rows, 1}, Block: [3]int{RippleTile, RippleTile, 1}, Args: []any{out}}}}
}

func rippleSharedBody[T kernels.Float](c kernels.Call) { ripple[T](c, RippleTile*RippleTile) }
func rippleRacyBody[T kernels.Float](c kernels.Call)   { ripple[T](c, 32) }

// ripple runs the threads of a block in consecutive groups. All threads of a group write
// before they read. With the barrier the group is the block, without it a warp.
func ripple[T kernels.Float](c kernels.Call, group int) {
	const side = RippleTile
	out := kernels.Slice[T](c, kernels.Args[rippleArgs](c).Out)
	width := c.Grid[0] * side
	sin := func(i int) float64 { return math.Sin(2 * math.Pi * float64((i-64)%256) / 256) }
	kernels.Parallel(int64(c.Grid[1]), kernels.Grain/int64(width*side)+1, func(lo, hi int64) {
		for by := int(lo); by < int(hi); by++ {
			for bx := range c.Grid[0] {
				var tile [side * side]T
				for first := 0; first < len(tile); first += group {
					for t := first; t < first+group; t++ {
						tile[t] = T((1 + sin(bx*side+t%side)) * (1 + sin(by*side+t/side)))
					}
					for t := first; t < first+group; t++ {
						out[(by*side+t/side)*width+bx*side+t%side] = tile[len(tile)-1-t]
					}
				}
			}
		}
	})
}

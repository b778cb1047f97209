package kernels

import "fmt"

// scatterRunsKernels are the one that sums runs of indices and the one that adds up their sums.
var scatterRunsKernels = [...][2]*Kernel{Float32: scatterRunsOf[float32](Float32), Float64: scatterRunsOf[float64](Float64)}

func scatterRunsOf[T Float](dt Dtype) [2]*Kernel {
	return [2]*Kernel{
		own.Kernel("scatter_runs", fmt.Sprintf("scatter_runs_%v", dt), scatterRunsBody[T]),
		own.Kernel("scatter_runs", fmt.Sprintf("scatter_runs_join_%v", dt), scatterRunsJoinBody[T]),
	}
}

// Constants of scatter_runs.cu, and where runs are. They must not depend on a device, since the order of sums follows from them.
const (
	ScatterLanes      = 32       // of an element's runs, see [ScatterRun]
	scatterRunsAcross = 8        // elements of a block that adds up
	scatterRunsRows   = 96       // most rows
	scatterRunsShared = 48 << 10 // bytes that every device has
	scatterRunsCount  = 1 << 12  // least indices,
	scatterRunsEach   = 64       // and as many of a row on the mean
	scatterRunLeast   = 256      // indices of a run,
	scatterRunOfRow   = 16       // and as many for each row, whose sums are written,
	scatterRunsMost   = 16 << 10 // and runs that there are at most
)

// ScatterRun returns how many indices in a row [Scatter] sums by themselves: all of them, or, where many fall into few
// rows, those of a run. Then lane l of ScatterLanes sums the runs l, l + ScatterLanes and so on, in order, and the
// lanes' sums are added up in order.
func ScatterRun(rows, count int64) int64 {
	if rows > scatterRunsRows || count < max(scatterRunsCount, scatterRunsEach*rows) {
		return count
	}
	return max(scatterRunLeast, scatterRunOfRow*rows, CeilDiv(count, scatterRunsMost))
}

// scatterRuns appends the launches of a scatter by runs.
func (p *Plan) scatterRuns(dt Dtype, outer, rows, count, inner, run int64) (*Plan, error) {
	number, elements, threads := CeilDiv(count, run), outer*rows*inner, int64(128)
	for rows*threads*dt.Size() > scatterRunsShared {
		threads /= 2
	}
	blocks := CeilDiv(outer*number*inner, threads)
	if err := CheckGrid(max(blocks, CeilDiv(elements, scatterRunsAcross))); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	partial := p.Workspace(number * elements * dt.Size())
	p.Launch(scatterRunsKernels[dt][0], int(blocks), int(threads), Ref{0, 0}, Ref{1, 0}, partial, outer, int32(rows), count, inner, int32(run),
		int32(number)).Shared = int(rows * threads * dt.Size())
	p.Launch(scatterRunsKernels[dt][1], int(CeilDiv(elements, scatterRunsAcross)), ScatterLanes*scatterRunsAcross, partial, Ref{Out, 0}, elements, int32(number))
	return p, nil
}

func scatterRunsBody[T Float](c Call) {
	g, indices, partial := Slice[T](c, 0), Slice[int64](c, 1), Slice[T](c, 2)
	outer, rows, count, inner, run, number := c.Int(3), c.Int(4), c.Int(5), c.Int(6), c.Int(7), c.Int(8)
	Parallel(outer*number, max(Grain/(run*inner), 1), func(lo, hi int64) {
		for at := lo; at < hi; at++ { // in order of the sums
			r, o := at/outer, at%outer
			sums := partial[at*rows*inner:][:rows*inner]
			clear(sums)
			for k := r * run; k < min((r+1)*run, count); k++ {
				if v := indices[k]; v >= 0 && v < rows {
					sum, x := sums[v*inner:][:inner], g[(o*count+k)*inner:][:inner]
					for i := range sum {
						sum[i] += x[i]
					}
				}
			}
		}
	})
}

func scatterRunsJoinBody[T Float](c Call) {
	partial, out, elements, number := Slice[T](c, 0), Slice[T](c, 1), c.Int(2), c.Int(3)
	Parallel(elements, max(Grain/number, 1), func(lo, hi int64) {
		lane := make([]T, hi-lo)
		clear(out[lo:hi])
		for l := range int64(ScatterLanes) {
			clear(lane)
			for r := l; r < number; r += ScatterLanes {
				for i, x := range partial[r*elements+lo : r*elements+hi] {
					lane[i] += x
				}
			}
			for i, x := range lane {
				out[lo+int64(i)] += x
			}
		}
	})
}

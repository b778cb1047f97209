package kernels

import "fmt"

var (
	windowSimpleKernel = [...]*Kernel{
		Float32: own.Kernel("windowsum_versions", "windowsum_simple_f32", windowBody[float32]),
		Float64: own.Kernel("windowsum_versions", "windowsum_simple_f64", windowBody[float64]),
	}
	windowSharedKernel = [...]*Kernel{
		Float32: own.Kernel("windowsum_versions", "windowsum_shared_f32", windowBody[float32]),
		Float64: own.Kernel("windowsum_versions", "windowsum_shared_f64", windowBody[float64]),
	}
)

// WindowSumVersion plans [WindowSum] by a numbered version of the kernel: 1 simple,
// 2 shared memory, 3 the op's own. mode is WindowValid or WindowSame. It is an
// error if the device cannot run so many blocks in one launch.
func WindowSumVersion(dev Device, dt Dtype, version int, rows, n, radius int64, mode WindowMode) (*Plan, error) {
	p := WindowSum(dev, dt, rows, n, radius, mode)
	if version == 3 || p.Out == 0 {
		return p, nil
	}
	p.Launches, p.Scratch = nil, 0
	g := windowRows{in: n, out: mode.Outputs(n, radius), rows: rows}
	if mode == WindowSame {
		radius = min(radius, n-1) // wider windows meet no further element
		g.off = -radius
	}
	g.w = 2*radius + 1

	const block, widest = 256, 1024 // threads; elements of a window held at a time
	kernel, blocks, args := windowSimpleKernel[dt], CeilDiv(g.rows*g.out, block), []any{Ref{0, 0}, Ref{Out, 0}, g.in, g.out, g.w, g.off, g.rows}
	shared := int64(0)
	if version == 2 {
		piece := min(g.w, widest)
		kernel, blocks, args = windowSharedKernel[dt], g.rows*CeilDiv(g.out, block), append(args, int32(piece))
		shared = (block + piece - 1) * dt.Size()
	}
	if err := CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("%s by version %d: %w", p.Op, version, err)
	}
	p.Launch(kernel, int(blocks), block, args...).Shared = int(shared)
	return p, nil
}

package bench

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// Every version of the convolution computes the definition, the last one with numbers of BF16, and twice the same bits.
func TestConvVersions(t *testing.T) {
	r := random(t)
	devices := []kernels.Device{kernels.HostDevice()}
	if list, err := cudaops.Devices(); err == nil {
		devices = append(devices, list[0].Device)
	}
	for version := 1; version <= len(versions.Docs("Conv")); version++ {
		for range 6 {
			c := drawConv(r, 1<<20, 1)
			if c.Dtype, c.Result = kernels.Float32, gemm.ConvOutput; version == 5 {
				c.Channels, c.Filters = (c.Channels+7)/8*8, (c.Filters+7)/8*8
			}
			x, w := make([]float32, c.Images*c.Channels*c.Rows.In*c.Columns.In), make([]float32, c.Filters*c.Channels*c.Rows.Size*c.Columns.Size)
			for _, list := range [][]float32{x, w} {
				for i := range list {
					list[i] = float32(math.Round(r.NormFloat64()*8) / 8) // also of BF16
				}
			}
			want, sizes := convolve(c, x, w)
			in, tolerance := [][]byte{kernels.Bytes(x), kernels.Bytes(w)}, 0x1p-16
			if version == 5 {
				in[0], tolerance = kernels.Bytes(halves(transposed(x, c.Images, c.Channels))), 0x1p-8
			}
			for _, dev := range devices {
				if version == 5 && dev.Kind == kernels.GPU && dev.Major != 9 {
					continue
				}
				p := testutil.Get[*kernels.Plan](t)(versions.Conv(dev, version, c))
				run := func() (got []float32) {
					out := make([]byte, p.Out)
					for i := range out {
						out[i] = 0xff // NaN
					}
					if dev.Kind == kernels.CPU {
						testutil.Do(t, runGuarded(new(exec.HostBackend), p, in, out))
					} else {
						testutil.Do(t, Run(0, p, in, out))
					}
					if version < 5 {
						return kernels.Elements[float32](out)
					}
					for _, h := range kernels.Elements[uint16](out) {
						got = append(got, expr.FromHalf(expr.BF16, h))
					}
					return transposed(got, c.Images, int64(len(got))/c.Images/c.Filters)
				}
				got, again := run(), run()
				for i, y := range want {
					if got[i] != again[i] || !(math.Abs(float64(got[i])-y) <= tolerance*sizes[i]) {
						t.Errorf("version %d on %s: element %d is %v, then %v, want %v within %v: %+v", version, dev.Name, i, got[i], again[i], y, tolerance*sizes[i], c)
						break
					}
				}
			}
		}
	}
	for _, c := range []gemm.Conv{{}, {Dtype: kernels.Float64, Images: 1, Channels: 1, Filters: 1, Groups: 1, Rows: gemm.ConvAxis{In: 1, Size: 1, Stride: 1, Dilation: 1}, Columns: gemm.ConvAxis{In: 1, Size: 1, Stride: 1, Dilation: 1}}} {
		if p, err := versions.Conv(kernels.HostDevice(), 1, c); err == nil {
			t.Errorf("%+v: got %v, want an error", c, p)
		}
	}
}

// halves returns numbers in BF16.
func halves(x []float32) []uint16 {
	to := make([]uint16, len(x))
	for i, v := range x {
		to[i] = expr.ToHalf(expr.BF16, v)
	}
	return to
}

// convolve returns outputs by the definition, and the sums of the sizes of their terms.
func convolve(c gemm.Conv, x, w []float32) (out, sizes []float64) {
	for n := range c.Images {
		for f := range c.Filters {
			for p := range c.Rows.Out() {
				for q := range c.Columns.Out() {
					sum, size := 0.0, 0.0
					for k, v := range w[f*c.Channels*c.Rows.Size*c.Columns.Size:][:c.Channels*c.Rows.Size*c.Columns.Size] {
						tap := int64(k)
						channel, i, j := tap/c.Rows.Size/c.Columns.Size, tap/c.Columns.Size%c.Rows.Size, tap%c.Columns.Size
						row, column := p*c.Rows.Stride-c.Rows.Before+i*c.Rows.Dilation, q*c.Columns.Stride-c.Columns.Before+j*c.Columns.Dilation
						if row >= 0 && row < c.Rows.In && column >= 0 && column < c.Columns.In {
							term := float64(v) * float64(x[((n*c.Channels+channel)*c.Rows.In+row)*c.Columns.In+column])
							sum, size = sum+term, size+math.Abs(term)
						}
					}
					out, sizes = append(out, sum), append(sizes, size)
				}
			}
		}
	}
	return out, sizes
}

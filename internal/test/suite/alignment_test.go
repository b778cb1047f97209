package suite

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
)

// The Go bodies compute the same bits at any address of their operands. Slices of
// tensors and memory provided by users can be unaligned. Vector code often handles the first elements
// separately, until an address is a multiple of the vector width.
func TestAlignment(t *testing.T) {
	each(t, 1<<13, planned, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		if c.Atomic {
			t.Skip("the order of atomics decides the last bits")
		}
		t.Parallel()
		r := Random(t)
		plain := opspec.Normal.Draw(r, c, dt)
		for _, dev := range append(Others, kernels.HostDevice()) {
			p, result, err := c.Plan(dt, dev)
			if err != nil {
				t.Fatal(err)
			}
			for name, xs := range map[string][][]float64{"random": plain, "cancelling": cancelling(r, dt, plain)} {
				if err := checkAlignment(p, dt, result.Dtype, bytesOf(dt, xs)); err != nil {
					t.Errorf("%s numbers, planned for %s: %v", name, dev.Name, err)
				}
			}
		}
	})
}

// cancelling returns numbers of many magnitudes whose products cancel: three, and the
// same three with the other sign. What is left of a sum is the rounding of its additions,
// which shows their order.
func cancelling(r *rand.Rand, dt kernels.Dtype, xs [][]float64) [][]float64 {
	out := make([][]float64, len(xs))
	for i, x := range xs {
		out[i] = make([]float64, len(x))
		for j := range len(x) / 6 * 6 {
			switch {
			case j%6 < 3 && dt.IsFloat():
				out[i][j] = math.Ldexp(x[j], r.IntN(24))
			case j%6 < 3:
				out[i][j] = x[j]
			case i == 0:
				out[i][j] = -out[i][j-3]
			default:
				out[i][j] = out[i][j-3]
			}
		}
	}
	return out
}

// checkAlignment runs a plan from dt to result with every operand at 16 places, from 0
// to 15 elements behind a multiple of 64 bytes.
func checkAlignment(p *kernels.Plan, dt, result kernels.Dtype, inputs [][]byte) error {
	var want []byte
	for k := range int64(16) {
		placed := make([][]byte, len(inputs))
		for i, b := range inputs {
			// Odd factors: each operand is at every place, together with others of the next.
			placed[i] = shifted(int64(len(b)), k*int64(2*i+1)%16*dt.Size())
			copy(placed[i], b)
		}
		out := shifted(p.Out, k*5%16*result.Size())
		if err := p.Run(placed, out, shifted(p.Scratch, k*8)); err != nil {
			return err
		}
		if want == nil {
			want = out
		}
		if !bytes.Equal(out, want) {
			return fmt.Errorf("%vgave other bits %d elements further: %w", p, k, Identical(result, out, want))
		}
	}
	return nil
}

// shifted returns memory that starts a number of bytes behind a multiple of 64.
func shifted(size, bytes int64) []byte {
	all := kernels.Bytes(make([]float64, (size+bytes+64)/8+1))
	bytes += int64(-uintptr(unsafe.Pointer(unsafe.SliceData(all))) % 64)
	return all[bytes : bytes+size : bytes+size]
}

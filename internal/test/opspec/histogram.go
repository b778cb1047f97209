package opspec

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var _ = register(Spec{
	Name:       "Histogram",
	Formula:    "out[k] = number of x with ⌊(x - lo) bins / (hi - lo)⌋ = k",
	Doc:        "Exact counts in bins of equal width, of bytes, integers and floating-point numbers; no gradient.",
	Types:      []kernels.Dtype{kernels.Float32, kernels.Float64, kernels.Uint8, kernels.Int32, kernels.Int64, kernels.Int},
	Exact:      true,
	NoGradient: true,
	Cases:      histogramCases(),
	Bad: []Bad{
		badHistogram("no bin", "got 0 bins, want 1 to 1073741824", 0, 0, 1),
		badHistogram("too many bins", "want 1 to 1073741824", math.MaxInt, 0, 1),
		badHistogram("empty range", "got bins from 1 to 1, want finite bounds", 3, 1, 1),
		badHistogram("range backwards", "got bins from 1 to 0", 3, 1, 0),
		badHistogram("bound is NaN", "got bins from 0 to NaN", 3, 0, math.NaN()),
		badHistogram("infinite bound", "got bins from 0 to +Inf", 3, 0, math.Inf(1)),
		badHistogram("infinite range", "want finite bounds", 3, -math.MaxFloat64, math.MaxFloat64),
		badHistogram("range too small", "want finite bounds", 3, 0, math.SmallestNonzeroFloat64),
		bad("version too large", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return versions.Version(4).Histogram(x, 3, 0, 1) }), "got version 4, want 0 to 3", tensor.Shape{7}),
	},
	Random: func(r *rand.Rand) Case {
		lo := float64(r.IntN(9) - 6)
		return histogramCase(0, randomShape(r, 1, 3), 1+r.IntN(300), lo, lo+float64(1+r.IntN(1000))/4)
	},
	Wide: func(s *Sizes) Case {
		bins, lo, hi := s.LogInt(1, 1_000_000), -1.0, 1.0
		if s.Type == kernels.Uint8 {
			bins, lo, hi = s.LogInt(1, 256), 0, 256
		}
		data := []string{"uniform", "uniform", "equal", "skewed"}[s.IntN(4)]
		c := histogramCase(0, s.Shape(s.Elements(1), 1, 1), bins, lo, hi)
		c.Name, c.Data, c.Fill = c.Name+", "+data, data, fillKind(s.Type, data)
		return c
	},
	Peers: `
def peers(c, d):
    n, bins, lo, hi, data = c["shapes"][0][0], c["bins"], c.get("lo", 0), c["hi"], c["data"]

    def numbers():
        if data == "equal":
            at = torch.full((n,), 0.3, device="cuda", dtype=torch.float64 if d == torch.float64 else torch.float32)
        else:
            at = torch.rand(n, device="cuda", dtype=torch.float64 if d == torch.float64 else torch.float32)
            if data == "skewed":
                at = at.pow_(8)
        if d == torch.uint8:
            return at.mul_(256).to(d)
        return at.mul_(2).sub_(1)

    if data == "text":
        letters = pathlib.Path(c["text"]).read_bytes()
        one = torch.frombuffer(bytearray((letters * (n // len(letters) + 1))[:n]), dtype=torch.uint8)
        numbers = lambda: one.repeat(REPEATED, 1).cuda()
    make = lambda: (numbers(), empty(torch.int32, [bins]))
    if d != torch.uint8:
        yield TORCH + " histc", make, lambda x, o: torch.histc(x, bins, lo, hi)
    if d != torch.float64:
        yield "CUB HistogramEven", make, lambda x, o: cub.histogram(c["dtype"], x, o, int(lo), int(hi))
`,
})

func badHistogram(name, want string, bins int, lo, hi float64) Bad {
	return bad(name, unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Histogram(x, bins, lo, hi) }), want, tensor.Shape{7})
}

func histogramCases() (cases []Case) {
	cases = []Case{
		histogramCase(0, tensor.Shape{1}, 1, -8, 8), histogramCase(0, tensor.ScalarShape(), 4, -2, 2),
		histogramCase(0, tensor.Shape{1025}, 256, 0, 256), histogramCase(0, tensor.Shape{31, 33}, 10, -0.3, 1),
		histogramCase(0, tensor.Shape{100003}, 128, 0, 128), histogramCase(0, tensor.Shape{1000003}, 256, 0, 256),
		histogramCase(0, tensor.Shape{40009}, 5000, -4, 4), histogramCase(0, tensor.Shape{40009}, 50000, -200, 200), histogramCase(0, tensor.Shape{40009}, 100000, -4, 300),
		histogramCase(0, tensor.Shape{700001}, 70001, -2, 2), histogramCase(0, tensor.Shape{800003}, 150001, -2, 2), histogramCase(0, tensor.Shape{2100001}, 200003, -2, 2),
	}
	for v := 1; v <= len(versions.Docs("Histogram")); v++ {
		cases = append(cases, histogramCase(v, tensor.Shape{1025}, 100, -1, 1), histogramCase(v, tensor.Shape{100003}, 256, 0, 256))
		cases = append(cases, histogramBytes(v, fmt.Sprintf("2^28 bytes version %d", v), 1<<28))
	}
	equal := histogramBytes(0, "2^30 equal bytes", 1<<30)
	equal.Data, equal.Fill = "equal", func(operand []byte) {
		for i := range operand {
			operand[i] = 'e'
		}
	}
	return append(cases, histogramCase(0, tensor.Shape{1, 1}, 1, 0, 1), histogramCase(0, tensor.Shape{7919, 1, 13}, 97, -1, 1),
		large(histogramCase(0, tensor.Shape{1<<31 + 3}, 256, 0, 256), kernels.Uint8),
		histogramBytes(0, "2^30 bytes", 1<<30), equal,
		timed("2^28 into 256", histogramCase(0, tensor.Shape{1 << 28}, 256, -1, 1)),
		timed("2^28 into 16384", histogramCase(0, tensor.Shape{1 << 28}, 16384, -1, 1)))
}

// histogramBytes is the timed case of n bytes and their 256 values.
func histogramBytes(v int, name string, n int) Case {
	return timed(name, histogramCase(v, tensor.Shape{n}, 256, 0, 256), kernels.Uint8)
}

func histogramCase(v int, s tensor.Shape, bins int, lo, hi float64) Case {
	c := Case{
		Name:       fmt.Sprintf("%v into %d of %v to %v", []int(s), bins, lo, hi),
		Shapes:     []tensor.Shape{s},
		Parameters: Parameters{Bins: bins, Lo: lo, Hi: hi, Data: "uniform"},
		Build: func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			return versions.Version(v).Histogram(in[0], bins, lo, hi)
		},
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			out, magnitude = make([]float64, bins), make([]float64, bins)
			for _, x := range in[0] {
				if x >= lo && x < hi {
					out[min(int(math.Floor((x-lo)*(float64(bins)/(hi-lo)))), bins-1)]++
				}
			}
			return out, magnitude
		},
	}
	if v > 0 {
		c = versioned(v, c, c.Build)
	}
	return c
}

// fillKind writes data of a kind, "uniform", "equal" or "skewed", into memory of elements of a
// type: numbers in [-1, 1), or bytes. A quarter of the skewed elements is in the lowest 2^-16 of
// the range.
func fillKind(dt kernels.Dtype, data string) func(operand []byte) {
	if data == "uniform" {
		return nil
	}
	return func(operand []byte) {
		r := rand.New(rand.NewPCG(1, 2))
		block := operand[:min(len(operand), 1<<20)] // the rest repeats it
		for i := range block[:len(block)/int(dt.Size())] {
			at := 0.3 // in [0, 1)
			if data == "skewed" {
				at = math.Pow(r.Float64(), 8)
			}
			switch dt {
			case kernels.Float32:
				kernels.Elements[float32](block)[i] = float32(2*at - 1)
			case kernels.Float64:
				kernels.Elements[float64](block)[i] = 2*at - 1
			default:
				block[i] = byte(256 * at)
			}
		}
		for done := len(block); done < len(operand); done *= 2 {
			copy(operand[done:], operand[:done])
		}
	}
}

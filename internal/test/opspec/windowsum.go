package opspec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var _ = register(Spec{
	Name:    "WindowSum",
	Formula: "out[..., i] = Σ x[..., i+j], |j| <= radius",
	Doc:     "Sum over a sliding window along the last axis; a window of a million elements takes little more than twice the time of one of five.",
	// The results are rounded once from double sums; for float64 the sums' own
	// rounding, here and in the reference, adds up over up to 2001 terms.
	Tolerance: 4,
	Cases: slices.Concat([]Case{
		windowCase("one element", 0, false, 1),
		windowCase("one window", 2, false, 5),
		windowCase("radius 0", 0, false, 17),
		windowCase("radius 1", 1, false, 101),
		windowCase("radius 7", 7, false, 5, 97),
		windowCase("radius 8", 8, false, 3, 5, 61),
		windowCase("radius 100", 100, false, 2, 4099),
		windowCase("radius 1000", 1000, false, 6007),
		windowCase("radius 2000", 2000, false, 8009),           // windows of several segments
		windowCase("rows, radius 1700", 1700, false, 3, 10009), // in float32, of one
		windowCase("same, radius 3000", 3000, true, 8201),
		windowCase("radius 26000", 26_000, false, 52_601), // of more segments than a block holds
		windowCase("same, one element", 3, true, 1),
		windowCase("same, radius 0", 0, true, 2, 3),
		windowCase("same, radius 2", 2, true, 3, 1, 31),
		windowCase("same, radius 8", 8, true, 67, 19),
		windowCase("same, radius 64", 64, true, 2, 2, 509),
		windowCase("same, radius beyond the axis", 50, true, 4, 13),
		windowCase("same, extents of 1", 2, true, 1, 1, 1),
		windowCase("prime extents", 3, false, 13, 1, 7919),
		windowCase("long rows that end anywhere", 3, false, 3, 20011),
		windowCase("same, long rows that end anywhere", 7, true, 5, 9001),
		windowCase("same, longer rows that end anywhere", 3, true, 3, 131_079),
		windowCase("short rows that end anywhere", 3, false, 4001, 17),
		windowCase("same, short rows that end anywhere", 7, true, 301, 127),
		windowCase("short rows that end anywhere, 25 elements", 12, false, 901, 61),
		windowCase("same, short rows that end anywhere, 25 elements", 12, true, 1301, 17),
		windowCase("same, rows of 512, 301 elements", 150, true, 67, 512),
		windowCase("rows of three elements", 1, false, 10007, 3),
		windowCase("radius 160", 160, false, 2, 4096),
		windowCase("same, radius 300", 300, true, 20_011),
		windowCase("rows that end anywhere, radius 155", 155, false, 3, 2501),
		windowCase("same, radius 8, rows", 8, true, 3, 2_800_001),
		large(windowCase("radius 2", 2, true, 1<<29+3), kernels.Float32),
		large(windowCase("rows", 2, true, 1<<15+1, 1<<14+1), kernels.Float32),
		timed("2^28 r=2", windowCase("", 2, true, 1<<28)),
		timed("2^28 r=32", windowCase("", 32, true, 1<<28), inBoth...),
		timed("2^28 r=512", windowCase("", 512, true, 1<<28)),
		timed("2^28 r=10^6", windowCase("", 1_000_000, true, 1<<28)),
		timed("2^20 x 256 r=2", windowCase("", 2, true, 1<<20, 256)),
	}, windowVersionCases()),
	Bad: []Bad{
		badWindow("radius below 0", "got radius -1, want 0 or more", tensor.Shape{9}, -1),
		badWindow("radius too large", "got radius 5 on a last axis of 10", tensor.Shape{10}, 5, ops.Valid()),
		badWindow("greatest radius", "on a last axis of 10", tensor.Shape{10}, math.MaxInt, ops.Valid()),
		badWindow("scalar", "got a scalar", tensor.Shape{}, 0),
		bad("version too large", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return versions.Version(4).WindowSum(x, 1) }), "got version 4, want 0 to 3", tensor.Shape{9}),
	},
	Random: func(r *rand.Rand) Case {
		shape := make([]int, 1+r.IntN(3))
		for i := range shape {
			shape[i] = 1 + r.IntN(6)
		}
		n := 1 + r.IntN(90)
		shape[len(shape)-1] = n
		if r.IntN(2) == 0 {
			return windowCase("random", r.IntN(n+20), true, shape...)
		}
		return windowCase("random", r.IntN((n-1)/2+1), false, shape...)
	},
	Wide: func(s *Sizes) Case {
		shape := s.Shape(s.Elements(2), 1, 2)
		row, same := shape[len(shape)-1], s.IntN(2) == 0
		most := min(row-1, 1_000_000)
		if !same {
			most = min((row-1)/2, 1_000_000)
		}
		radius, mode := s.LogInt(1, most+1)-1, "valid"
		if same {
			mode = "same"
		}
		return windowCase(fmt.Sprintf("%v r=%d %s", []int(shape), radius, mode), radius, same, shape...)
	},
	Peers: `
def peers(c, d):
    s, r, same = c["shapes"][0], c.get("radius", 0), c.get("same", False)
    n, k = s[-1], 2 * r + 1
    make = lambda: (drawn(d, s).view(-1, 1, n),)
    if r <= 512:
        yield TORCH + " avg_pool1d", make, lambda x: F.avg_pool1d(x, k, 1, r if same else 0)
    if r <= 7:
        w = torch.ones(1, 1, k, dtype=d, device="cuda")
        yield TORCH + " conv1d", make, lambda x: F.conv1d(x, w, padding=r if same else 0)
    if r >= 16:

        def running(x):  # of any radius in one pass more, with the type's rounding
            sums = F.pad(x, (r + 1, r) if same else (1, 0)).cumsum(-1)
            return sums[..., k:] - sums[..., :-k]

        yield TORCH + " cumsum", make, running
`,
})

// windowOption is the option for the mode.
func windowOption(same bool) ops.WindowOption {
	if same {
		return ops.Same()
	}
	return ops.Valid()
}

func badWindow(name, want string, s tensor.Shape, radius int, opts ...ops.WindowOption) Bad {
	return bad(name, unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.WindowSum(x, radius, opts...) }), want, s)
}

func windowCase(name string, radius int, same bool, shape ...int) Case {
	return Case{
		Name:       name,
		Shapes:     []tensor.Shape{shape},
		Parameters: Parameters{Radius: radius, Same: same},
		Build: func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			return ops.WindowSum(in[0], radius, windowOption(same))
		},
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			n := shape[len(shape)-1]
			first, last := radius, n-radius // centres
			if same {
				first, last = 0, n
			}
			sums, sizes := make([]total, n+1), make([]total, n+1) // of the first elements of a row
			for row := 0; row < len(in[0]); row += n {
				x := in[0][row : row+n]
				for i, v := range x {
					sums[i+1], sizes[i+1] = sums[i], sizes[i]
					sums[i+1].add(v)
					sizes[i+1].add(math.Abs(v))
				}
				for centre := first; centre < last; centre++ {
					lo, hi := max(centre-radius, 0), min(centre+radius+1, n)
					sum, size := sums[hi].less(sums[lo]), sizes[hi].less(sizes[lo])
					if sum != sum { // a number that is not finite, in the window or before it
						var s, a total
						for _, v := range x[lo:hi] {
							s.add(v)
							a.add(math.Abs(v))
						}
						sum, size = s.value(), a.value()
					}
					out, magnitude = append(out, sum), append(magnitude, size)
				}
			}
			return out, magnitude
		},
	}
}

package graphspec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// A result in which a decision in doubt went the other way is right, also where several
// did; one in which another decision did is wrong.
func TestDecisions(t *testing.T) {
	side := net{9, []int{3, 4}, 7, 3}
	for name, c := range map[string]Case{"perceptron": MLP(13, 31, 17, 19, 10), "convolutions": Convnet(3, side)} {
		t.Run(name, func(t *testing.T) {
			block := random(t)
			r := rand.New(rand.NewPCG(uint64(math.Float32bits(block[0])), 0))
			for range 5 {
				in := c.Values(block)
				x := testutil.Get[[][]float32](t)(Elements(in))
				if name == "perceptron" {
					doubtRectifier(r, x[0][:31], x[2], x[3])
				} else {
					doubtFilter(r, x[0][:side.side*side.side], x[2][:9], side.side)
				}
				testDecisions(t, c, in)
				r.Shuffle(len(block), func(i, j int) { block[i], block[j] = block[j], block[i] })
			}
		})
	}
}

// doubtRectifier changes a bias so that a number before a rectifier is 0, but for rounding.
func doubtRectifier(r *rand.Rand, x, w, bias []float32) {
	j, sum := r.IntN(len(bias)), 0.0
	for k, v := range x {
		sum += float64(v) * float64(w[k*len(bias)+j])
	}
	bias[j] = float32(-sum)
}

// doubtFilter changes a weight of the first filter so that two neighbours of a window are
// equal, but for rounding, until they are the greatest.
func doubtFilter(r *rand.Rand, image, filter []float32, side int) {
	for {
		i, j, t := 2+2*r.IntN(side/2-1), 2+2*r.IntN(side/2-1), r.IntN(9) // where a window begins, inside the image
		convolved := func(i, j, but int) (sum float64) {
			for k, w := range filter {
				if k != but {
					sum += float64(w) * float64(image[(i+k/3-1)*side+j+k%3-1])
				}
			}
			return sum
		}
		at := (i+t/3-1)*side + j + t%3 - 1
		filter[t] = float32((convolved(i, j+1, t) - convolved(i, j, t)) / float64(image[at]-image[at+1]))
		window := []float64{convolved(i, j, -1), convolved(i, j+1, -1), convolved(i+1, j, -1), convolved(i+1, j+1, -1)}
		if most := min(window[0], window[1]); most > max(window[2], window[3], 0)+0.1 && filter[t] < 1 && filter[t] > -1 {
			return
		}
		filter[t] = r.Float32()/8 - 1.0/16
	}
}

// testDecisions turns decisions of the first row.
func testDecisions(t *testing.T, c Case, in []gorgonia.Value) {
	whole, inputs := make([][]float64, len(in)), testutil.Get[[][]float32](t)(Elements(in))
	for i, x := range inputs {
		whole[i] = make([]float64, len(x))
		widen(whole[i], x)
	}
	s := c.samples(inputs, whole)
	with := func(turned ...int) (values []gorgonia.Value, d Decisions) {
		total := c.zeros()
		for r := range c.Rows {
			s.read(r)
			out := c.zeros()
			if r > 0 {
				c.Row(s.row, out, &Decisions{})
			} else {
				d.turned = turned
				c.Row(s.row, out, &d)
			}
			add(total, out)
		}
		return narrow(total), d
	}
	out, d := with()
	if worst, err := c.Check(in, out); err != nil || worst.Share > 0.01 {
		t.Fatalf("the reference is off from itself by %v, %v", worst, err)
	}
	if len(d.doubts) == 0 {
		t.Fatal("no decision is in doubt")
	}
	out, _ = with(d.doubts...)
	if worst, err := c.Check(in, out); err != nil || worst.Share > 0.01 {
		t.Errorf("decisions %v, in doubt, the other way: error %v, %v", d.doubts, worst, err)
	}
	wrong := 0
	for i := range d.made {
		if slices.Contains(d.doubts, i) {
			continue
		}
		out, _ := with(append([]int{i}, d.doubts...)...)
		if worst, err := c.Check(in, out); err != nil || worst.Share > 1 {
			wrong++
		}
	}
	if wrong == 0 { // decisions of hidden units with a zero gradient do not change the result
		t.Errorf("none of %d decisions that are not in doubt is seen the other way", d.made-len(d.doubts))
	}
}

// narrow returns outputs as a run returns them.
func narrow(outputs [][]float64) (list []gorgonia.Value) {
	for _, o := range outputs {
		v, m := values.New(kernels.Float32, []int{len(o)})
		for i, x := range o {
			kernels.Elements[float32](m)[i] = float32(x)
		}
		list = append(list, v)
	}
	return list
}

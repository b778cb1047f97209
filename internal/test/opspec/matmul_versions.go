package opspec

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels/versions"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// matMulVersionCases have sizes inside one tile, of whole tiles and beyond,
// both operands transposed or not, batches, and vectors as matrices. Sums are at
// most 257 terms long, as in the Spec's tolerance.
func matMulVersionCases() (cases []Case) {
	for v := 1; v <= versions.TiledMatMuls; v++ {
		add := func(name string, o transposes, c Case) {
			if name != "" {
				c = timed(name, c)
			}
			c.Coarse = v == 7
			cases = append(cases, versioned(v, c, func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
				return versions.Version(v).MatMul(in[0], in[1], o.options()...)
			}))
		}
		for t := range 4 {
			o := transposes{a: t >= 2, b: t%2 == 1}
			add("", o, matMulOf(o, 5, 3, 4))
			add("", o, matMulOf(o, 67, 41, 101))
			add("", o, matMulOf(o, 131, 129, 257))
			add("", o, matMulOf(o, 33, 20, 65, 2, 3))
		}
		o := transposes{}
		add("", o, matMulCase(o, tensor.Shape{1, 1}, tensor.Shape{1, 1}))
		add("", o, matMulCase(o, tensor.Shape{256, 64}, tensor.Shape{64, 128}))
		add("", o, matMulCase(o, tensor.Shape{3, 70}, tensor.Shape{70}))
		add("", o, matMulCase(o, tensor.Shape{70}, tensor.Shape{70, 5}))
		for _, n := range []int{1024, 4096, 4097} {
			add(fmt.Sprint(n), o, matMulOf(o, n, n, n))
		}
	}
	return cases
}

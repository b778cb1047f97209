package opspec

import (
	"github.com/stheno-ml/stheno/kernels/versions"
	"gorgonia.org/tensor"
)

func dotVersionCases() (cases []Case) {
	for v := 1; v <= len(versions.Docs("Dot")); v++ {
		version := func(c Case) Case {
			c = versioned(v, c, binary(versions.Version(v).Dot))
			c.Atomic = v >= 2
			return c
		}
		for _, n := range []int{1, 1025, 100003, 1000003} {
			cases = append(cases, version(dotCase(tensor.Shape{n})))
		}
		cases = append(cases, version(timed("2^28", dotCase(tensor.Shape{1 << 28}))))
	}
	return cases
}

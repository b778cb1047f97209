package opspec

import (
	"github.com/stheno-ml/stheno/kernels/versions"
	"gorgonia.org/tensor"
)

// sumVersionCases: version 1 gets no more elements than one thread can read in
// a test's time, and versions 1 and 2 are timed on 2^18 elements alone.
func sumVersionCases() (cases []Case) {
	for v := 1; v <= len(versions.Docs("Sum")); v++ {
		add := func(name string, s tensor.Shape) {
			c := sumCase(false, s)
			if name != "" {
				c = timed(name, c)
			}
			c = versioned(v, c, along(versions.Version(v).Sum))
			c.Atomic = 2 <= v && v <= 4
			cases = append(cases, c)
		}
		if v == 9 {
			add("", tensor.Shape{1, 1})
			add("", tensor.Shape{3, 5})
			add("", tensor.Shape{1031, 17})
			add("", tensor.Shape{17, 1031})
			add("", tensor.Shape{1500, 1100})
			add("all 512x512", tensor.Shape{1 << 9, 1 << 9})
			add("both 16384x16384", tensor.Shape{1 << 14, 1 << 14})
			continue
		}
		add("", tensor.Shape{1})
		add("", tensor.Shape{1025})
		add("", tensor.Shape{3, 5, 7})
		add("", tensor.Shape{100003})
		add("all 512x512", tensor.Shape{1 << 9, 1 << 9})
		if v > 1 {
			add("", tensor.Shape{1000003})
		}
		if v > 2 {
			add("all 2^28", tensor.Shape{1 << 28})
		}
	}
	return cases
}

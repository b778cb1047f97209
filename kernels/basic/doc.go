// Package basic plans ops of one kernel each: additions, scaled rows, broadcasts, gathers, scatters, picks, cumulative sums,
// selections of the largest elements, draws, histograms, iterations.
package basic

import "github.com/stheno-ml/stheno/kernels"

// own holds the kernels of the family.
var own = kernels.Builtin()

// nothing is the Go body of a kernel whose work the Go body of the plan's other launches does.
func nothing(kernels.Call) {}

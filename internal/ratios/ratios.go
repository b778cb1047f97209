// Package ratios compares the times of many cases with those of other libraries: how far
// apart they are for each op, which are worst, and where all lie under the roofline.
package ratios

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/internal/results"
	"gonum.org/v1/gonum/stat"
)

// Point is a case with its time here and that of the fastest other library.
type Point struct {
	Row  results.Row
	Peer results.Peer
}

// Ratio is how many times as fast as the other library the case is.
func (p Point) Ratio() float64 { return p.Peer.Micros / p.Row.Micros }

// Of returns the rows of a file that have a peer, the worst ratio first.
func Of(f *results.File) (points []Point) {
	for _, row := range f.Rows {
		if peer, ok := f.Best(row.Key); ok && row.Complete() {
			points = append(points, Point{row, peer})
		}
	}
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.Ratio(), b.Ratio()) })
	return points
}

// level is the ratio below which cases are counted.
const level = 0.8

// Table is a line for each op, and one for all together if there are several: the number of
// cases, the geometric mean of their ratios, percentiles, and how many are below [level].
func Table(points []Point) [][]string {
	lines := [][]string{{"op", "cases", "geometric mean", "least", "5 %", "25 %", "median", "75 %", "95 %", "most", fmt.Sprintf("below %g", level)}}
	of := map[string][]float64{}
	var ops []string
	var all []float64
	for _, p := range points {
		op, ratio := p.Row.Op, p.Ratio()
		if of[op] == nil {
			ops = append(ops, op)
		}
		of[op], all = append(of[op], ratio), append(all, ratio)
	}
	slices.Sort(ops)
	for _, op := range ops {
		lines = append(lines, line(op, of[op]))
	}
	if len(ops) > 1 {
		lines = append(lines, line("all", all))
	}
	return lines
}

func line(name string, ratios []float64) []string {
	slices.Sort(ratios)
	below, _ := slices.BinarySearch(ratios, level)
	cells := []string{name, fmt.Sprint(len(ratios)), fmt.Sprintf("%.2f", stat.GeometricMean(ratios, nil))}
	for _, p := range []float64{0, 0.05, 0.25, 0.5, 0.75, 0.95, 1} {
		cells = append(cells, fmt.Sprintf("%.2f", stat.Quantile(p, stat.Empirical, ratios, nil)))
	}
	return append(cells, fmt.Sprint(below))
}

// fastest is the highest rate of operations that a point reaches, here or elsewhere, in
// TFLOP/s.
func fastest(points []Point) (tflops float64) {
	for _, p := range points {
		if p.Row.Arithmetic() {
			tflops = max(tflops, p.Row.TFLOPs(), p.Row.TFLOPs()*p.Row.Micros/p.Peer.Micros)
		}
	}
	return tflops
}

// finite reports whether a number can be drawn on a logarithmic axis.
func finite(x float64) bool { return x > 0 && !math.IsInf(x, 1) }

// Starved returns the rows that are bound by memory, move more than 64 MB, and do so below 60 % of
// the bandwidth of a copy, the worst first.
func Starved(f *results.File) []results.Row {
	const large, share = 64 << 20, 0.6
	rows := slices.DeleteFunc(slices.Clone(f.Rows), func(r results.Row) bool {
		return r.Arithmetic() || !r.Complete() || r.Bytes <= large || r.GBs() >= share*f.Copy
	})
	slices.SortStableFunc(rows, func(a, b results.Row) int { return cmp.Compare(a.GBs(), b.GBs()) })
	return rows
}

package records

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"
)

// Point is a case with its time here and that of the fastest other library.
type Point struct{ Here, Peer Record }

// Ratio is how many times as fast as the other library the case is.
func (p Point) Ratio() float64 { return p.Peer.Us / p.Here.Us }

// Points returns the times of a file that have a peer, the worst ratio first.
func (f *File) Points() (points []Point) {
	for _, r := range f.Of(Time) {
		if peer, ok := f.Best(r.Key); ok && r.Complete() {
			points = append(points, Point{r, peer})
		}
	}
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.Ratio(), b.Ratio()) })
	return points
}

// level is the ratio below which cases are counted.
const level = 0.8

// Ratios is a line for each op, and one for all together if there are several: the number of
// cases, the geometric mean of their ratios, percentiles, and how many are below [level].
func Ratios(points []Point) [][]string {
	lines := [][]string{{"op", "cases", "geometric mean", "least", "5 %", "25 %", "median", "75 %", "95 %", "most", fmt.Sprintf("below %g", level)}}
	of := map[string][]float64{}
	var all []float64
	for _, p := range points {
		of[p.Here.Op], all = append(of[p.Here.Op], p.Ratio()), append(all, p.Ratio())
	}
	ops := slices.Sorted(maps.Keys(of))
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

// Starved returns the cases that are bound by memory, move more than 64 MB, and do so below 60 % of
// the bandwidth of a copy, the worst first.
func (f *File) Starved() []Record {
	const large, share = 64 << 20, 0.6
	list := slices.DeleteFunc(f.Of(Time), func(r Record) bool {
		return r.Arithmetic() || !r.Complete() || r.Values["bytes"] <= large || r.GBs() >= share*f.RunOf(r).Copy
	})
	slices.SortStableFunc(list, func(a, b Record) int { return cmp.Compare(a.GBs(), b.GBs()) })
	return list
}

// Picture is the name of the plot of a GPU's drawn cases, beside the page.
func Picture(gpu string) string { return "drawn-" + strings.TrimSuffix(Name(gpu), ".json") + ".svg" }

// DrawnCases describes the drawn cases of a GPU: the ratios by op, the cases that miss a goal, and the plot.
func DrawnCases(f *File, _ []Key) string {
	points, head := f.Points(), f.Head()
	text := fmt.Sprintf("%s: %d cases, seed %d, of which %d have a time in another library. Device copy: %.0f GB/s.\n\n",
		f.heading(head), len(f.Of(Time)), head.Seed, len(points), head.Copy) + f.Since() + Grid("lr", Ratios(points))
	slow := [][]string{{fmt.Sprintf("below %g", level), "Stheno", "the other", "ratio", "the other is"}}
	for _, p := range points {
		if p.Ratio() < level {
			slow = append(slow, []string{p.Here.Key.String(), Micros(p.Here.Us), Micros(p.Peer.Us), fmt.Sprintf("%.2f", p.Ratio()), p.Peer.By})
		}
	}
	starved := [][]string{{"over 64 MB, below 60 % of copy", "Stheno", "of copy"}}
	for _, r := range f.Starved() {
		starved = append(starved, []string{r.Key.String(), r.Micros(), f.OfCopy(r)})
	}
	for _, lines := range [][][]string{slow, starved} {
		if len(lines) > 1 {
			text += "\n" + Grid("lr", lines)
		}
	}
	if len(points) > 0 {
		text += fmt.Sprintf("\n![All drawn cases: bytes, or operations, over time, here and in the fastest other library, under the roofline](%s)\n", Picture(f.GPU))
	}
	return text
}

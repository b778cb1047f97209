package ratios

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/internal/theme"
)

// Plot draws all points into a file of one of [figure.Formats]: bytes against time where
// memory is the limit, operations against time where arithmetic is, here and elsewhere. The
// line is the roofline: the bandwidth of a copy in GB/s, and the highest rate of operations
// that any point reached.
func Plot(path, title, here, elsewhere string, points []Point, bandwidth float64) error {
	var panels []figure.Panel
	for _, arithmetic := range []bool{false, true} {
		chosen := slices.DeleteFunc(slices.Clone(points), func(p Point) bool {
			return p.Row.Arithmetic() != arithmetic || !finite(p.Row.Micros) || !finite(p.Peer.Micros) || p.Row.Bytes == 0
		})
		if len(chosen) == 0 {
			continue
		}
		y, label, roof, name := bytes, "bytes moved", 1e3*bandwidth, fmt.Sprintf("copy, %.3g GB/s", bandwidth)
		if arithmetic {
			tflops := fastest(chosen)
			y, label, roof, name = flops, "operations", 1e6*tflops, fmt.Sprintf("the fastest, %.3g TFLOP/s", tflops)
		}
		panels = append(panels, figure.Chart{
			Title: title, XLabel: "time, µs", LogX: true, YLabel: label, Log: true, Series: series(chosen, y, here, elsewhere, roof, "roofline: "+name),
		})
	}
	if len(panels) == 0 {
		return fmt.Errorf("ratios: got no point to draw, want at least one")
	}
	return figure.Save(path, panels...)
}

func bytes(p Point) float64 { return float64(p.Row.Bytes) }

func flops(p Point) float64 { return float64(p.Row.Flops) }

// series returns points over their times in microseconds, and a line of roof units a
// microsecond.
func series(points []Point, y func(Point) float64, here, elsewhere string, roof float64, name string) []figure.Series {
	ours, theirs := figure.Series{Name: here, Colour: theme.Blue, Dots: true}, figure.Series{Name: elsewhere, Colour: theme.Amber, Dots: true}
	low, high := y(points[0]), y(points[0])
	for _, p := range points {
		ours.X, ours.Y = append(ours.X, p.Row.Micros), append(ours.Y, y(p))
		theirs.X, theirs.Y = append(theirs.X, p.Peer.Micros), append(theirs.Y, y(p))
		low, high = min(low, y(p)), max(high, y(p))
	}
	line := figure.Series{Name: name, Colour: theme.Ink, X: []float64{low / roof, high / roof}, Y: []float64{low, high}}
	return []figure.Series{line, theirs, ours}
}

package maintain

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/internal/maintain/records"
)

// PlotDrawn plots the recorded random cases that have a peer, a file for each GPU.
func PlotDrawn(into, folder string) error {
	files, err := Read(folder, records.Drawn)
	for _, f := range files {
		if err == nil {
			points := f.Points()
			title := fmt.Sprintf("%d drawn cases, %s, seed %d", len(points), f.GPU, f.Head().Seed)
			err = plot(filepath.Join(into, records.Picture(f.GPU)), title, points, f.Head().Copy)
		}
	}
	return err
}

// plot writes the points as SVG: bytes against time where
// memory is the limit, operations against time where arithmetic is, of Stheno and of the fastest peer. The
// line is the roofline: the bandwidth of a copy in GB/s, and the highest rate of operations
// that any point reached.
func plot(path, title string, points []records.Point, bandwidth float64) error {
	var panels []figure.Panel
	for _, arithmetic := range []bool{false, true} {
		y, label := "bytes", "bytes moved"
		if arithmetic {
			y, label = "flops", "operations"
		}
		var chosen []records.Point
		tflops := 0.0 // the highest rate that a point reaches, here or elsewhere
		for _, p := range points {
			if p.Here.Arithmetic() == arithmetic && finite(p.Here.Us) && finite(p.Peer.Us) && p.Here.Values["bytes"] > 0 {
				chosen, tflops = append(chosen, p), max(tflops, p.Here.TFLOPs(), p.Here.TFLOPs()/p.Ratio())
			}
		}
		if len(chosen) == 0 {
			continue
		}
		roof, name := 1e3*bandwidth, fmt.Sprintf("roofline: copy, %.3g GB/s", bandwidth)
		if arithmetic {
			roof, name = 1e6*tflops, fmt.Sprintf("roofline: the fastest, %.3g TFLOP/s", tflops)
		}
		panels = append(panels, figure.Chart{Title: title, XLabel: "time, µs", LogX: true, YLabel: label, Log: true, Series: series(chosen, y, roof, name)})
	}
	if len(panels) == 0 {
		return fmt.Errorf("got no point to draw, want at least one")
	}
	return figure.Save(path, panels...)
}

// series returns values of points over their times in microseconds, and a line of roof units a microsecond.
func series(points []records.Point, y string, roof float64, name string) []figure.Series {
	ours, theirs := figure.Series{Name: "Stheno", Colour: figure.Blue, Dots: true}, figure.Series{Name: "the fastest other library", Colour: figure.Amber, Dots: true}
	for _, p := range points {
		ours.X, ours.Y = append(ours.X, p.Here.Us), append(ours.Y, p.Here.Values[y])
		theirs.X = append(theirs.X, p.Peer.Us)
	}
	theirs.Y = ours.Y
	low, high := slices.Min(ours.Y), slices.Max(ours.Y)
	line := figure.Series{Name: name, Colour: figure.Ink, X: []float64{low / roof, high / roof}, Y: []float64{low, high}}
	return []figure.Series{line, theirs, ours}
}

// finite reports whether a number can be drawn on a logarithmic axis.
func finite(x float64) bool { return x > 0 && !math.IsInf(x, 1) }

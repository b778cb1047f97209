package ratios

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Formats are the kinds of files that [Plot] writes, by the ends of their names.
var Formats = []string{".svg", ".png"}

var (
	blue   = color.RGBA{0x1f, 0x6f, 0xb4, 0xff}
	orange = color.RGBA{0xd9, 0x5f, 0x02, 0xff}
)

// Plot draws all points into a file: bytes against time where the memory is the limit,
// operations against time where arithmetic is, here and elsewhere. The roofline above them is the
// bandwidth of a copy in GB/s, and the highest rate of operations that any reached.
func Plot(path, title, here, elsewhere string, points []Point, bandwidth float64) error {
	var panels []*plot.Plot
	for _, arithmetic := range []bool{false, true} {
		chosen := slices.DeleteFunc(slices.Clone(points), func(p Point) bool {
			return p.Row.Arithmetic() != arithmetic || !finite(p.Row.Micros) || !finite(p.Peer.Micros) || p.Row.Bytes == 0
		})
		if len(chosen) == 0 {
			continue
		}
		y, unit, axis, roof, name := bytes, "B", "bytes moved", 1e3*bandwidth, fmt.Sprintf("copy, %.3g GB/s", bandwidth)
		if arithmetic {
			tflops := fastest(chosen)
			y, unit, axis, roof, name = flops, "", "operations", 1e6*tflops, fmt.Sprintf("the fastest, %.3g TFLOP/s", tflops)
		}
		p, err := panel(chosen, y, here, elsewhere, roof, name)
		if err != nil {
			return err
		}
		p.Y.Label.Text, p.Title.Text, p.Y.Tick.Marker = axis+" (log)", title, decades(unit, 0)
		panels = append(panels, p)
	}
	if len(panels) == 0 {
		return fmt.Errorf("ratios: there is no point to draw")
	}
	return write(path, panels)
}

func bytes(p Point) float64 { return float64(p.Row.Bytes) }

func flops(p Point) float64 { return float64(p.Row.Flops) }

// panel draws points over their times, and a line of roof units a microsecond.
func panel(points []Point, y func(Point) float64, here, elsewhere string, roof float64, name string) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.X.Tick.Marker = "time (log)", decades("s", 6) // of microseconds
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	ours, theirs := make(plotter.XYs, len(points)), make(plotter.XYs, len(points))
	low, high := math.Inf(1), 0.0
	for i, point := range points {
		ours[i], theirs[i] = plotter.XY{X: point.Row.Micros, Y: y(point)}, plotter.XY{X: point.Peer.Micros, Y: y(point)}
		low, high = min(low, y(point)), max(high, y(point))
	}
	p.Add(plotter.NewGrid())
	line, err := plotter.NewLine(plotter.XYs{{X: low / roof, Y: low}, {X: high / roof, Y: high}})
	if err != nil {
		return nil, err
	}
	line.Width = vg.Points(1.5)
	p.Add(line)
	p.Legend.Add("roofline: "+name, line)
	for _, set := range []struct {
		name  string
		xys   plotter.XYs
		shape draw.GlyphDrawer
		color color.Color
	}{{elsewhere, theirs, draw.PyramidGlyph{}, orange}, {here, ours, draw.RingGlyph{}, blue}} {
		scatter, err := plotter.NewScatter(set.xys)
		if err != nil {
			return nil, err
		}
		scatter.GlyphStyle = draw.GlyphStyle{Color: set.color, Radius: vg.Points(2.5), Shape: set.shape}
		p.Add(scatter)
		p.Legend.Add(set.name, scatter)
	}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(3)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} { // whole decades, at least one
		axis.Min, axis.Max = math.Pow10(int(math.Floor(math.Log10(axis.Min)))), math.Pow10(1+int(math.Floor(math.Log10(axis.Max))))
	}
	p.Y.Max *= 10 // for the legend
	return p, nil
}

// decades marks the powers of ten of a unit, which is itself a power of ten of the values',
// and nine steps between them.
func decades(unit string, power int) plot.TickerFunc {
	return func(lo, hi float64) (list []plot.Tick) {
		first, last := int(math.Floor(math.Log10(lo))), int(math.Ceil(math.Log10(hi)))
		every := max(1, (last-first+7)/8)
		for e := first; e <= last; e++ {
			for f := 1; f < 10; f++ {
				tick := plot.Tick{Value: float64(f) * math.Pow10(e)}
				if f == 1 && e%every == 0 {
					tick.Label = quantity(e-power, unit)
				}
				if tick.Value >= lo && tick.Value <= hi {
					list = append(list, tick)
				}
			}
		}
		return list
	}
}

// quantity prints a power of ten of a unit: 100 µs, 10 GB, 1 T.
func quantity(e int, unit string) string {
	const least = -12
	prefixes := []string{"p", "n", "µ", "m", "", "k", "M", "G", "T", "P", "E"}
	i := min(max((e-least)/3, 0), len(prefixes)-1)
	if e < least {
		i = 0
	}
	return strings.TrimSpace(fmt.Sprint(math.Pow10(e-least-3*i)) + " " + prefixes[i] + unit)
}

// write draws panels side by side into a file.
func write(path string, panels []*plot.Plot) error {
	width, height := vg.Points(480*float64(len(panels))), vg.Points(420)
	var canvas vg.CanvasWriterTo
	switch end := filepath.Ext(path); end {
	case ".svg":
		canvas = vgsvg.New(width, height)
	case ".png":
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(144))}
	default:
		return fmt.Errorf("ratios: got a file named %s, want its name to end in %s", path, strings.Join(Formats, " or "))
	}
	dc := draw.New(canvas)
	if png, ok := canvas.(vgimg.PngCanvas); ok {
		png.SetColor(color.White)
		png.Fill(dc.Rectangle.Path())
	}
	tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: vg.Points(18), PadTop: vg.Points(4), PadRight: vg.Points(10)}
	for i, part := range plot.Align([][]*plot.Plot{panels}, tiles, dc)[0] {
		panels[i].Draw(part)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

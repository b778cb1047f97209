// Convolution computes layers of a residual network in five steps, from a thread that computes an output to the kernels that the op runs on an H100.
//
//	go run ./examples/13-convolution
//	go run ./examples/13-convolution -html out.html
//
// It reads like a notebook: this file takes the steps, steps.go has their text and explains the matrix of windows. Without a GPU it runs the kernels' Go bodies on less and shows the times
// recorded on a GPU.
package main

import (
	"embed"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/versions"
)

//go:embed *.go recorded.json
var files embed.FS

const title = "Convolution: from a matrix of windows to none"

func main() { notebook.Main(title, files, run) }

func run(p *notebook.Page) {
	l := begin(p)
	for i, s := range steps {
		p.Heading(fmt.Sprintf("Step %d: %s", i+1, versions.Docs("Conv")[i].Name))
		p.Text("%s", s.before)
		if s.example != nil {
			s.example(p)
		}
		if s.functions != nil {
			p.Source(s.file, s.functions...)
		}
		l.step(i + 1)
		p.Text("%s", s.after)
	}
	l.compare()
}

// layers are the 3 x 3 convolutions of ResNet-50, of as many filters as channels. The text speaks of the one at mainLayer.
var layers = []struct{ channels, side int }{{64, 56}, {128, 28}, {256, 14}, {512, 7}}

const mainLayer = 1

// last is the version whose images and outputs are in BF16 with channels last.
const last = 5

// A ladder is the page, and for each layer the operands, the times of the versions in us, and the bytes that they need beside operands and result.
type ladder struct {
	*notebook.Page
	images, filters []float32 // as many as the largest operands have
	us, bytes       [last + 1][]float64
}

// conv is the convolution of a layer.
func conv(layer struct{ channels, side int }, images int) gemm.Conv {
	n, axis := int64(layer.channels), gemm.ConvAxis{In: int64(layer.side), Size: 3, Stride: 1, Dilation: 1, Before: 1, After: 1}
	return gemm.Conv{Dtype: kernels.Float32, Images: int64(images), Channels: n, Filters: n, Groups: 1, Rows: axis, Columns: axis}
}

func begin(p *notebook.Page) *ladder {
	l := &ladder{Page: p}
	state := uint32(1)
	numbers := func(n int) []float32 {
		list := make([]float32, n)
		for i := range list {
			state = state*1664525 + 1013904223
			list[i] = float32(int32(state)>>24) / 128 // of BF16, too
		}
		return list
	}
	l.images, l.filters = numbers(p.Size(64, 1, 1)*64*56*56), numbers(512*512*9)
	p.Heading("The task")
	p.Text(`A convolution slides filters over images. An image has C channels, planes of H x W numbers. A filter has a window of R x S numbers for each channel, and its output at a pixel is the sum
		of the products with what is under it: out[f][p] = Σ filters[f][c][i] image[c][p + i] over channels c and elements i of the window. Layers of residual networks have windows of 3 x 3 and as many
		filters as channels, so that an element of an image is used by nine elements of each filter. For 64 images of 56 x 56 pixels with 64 channels these are 7.4 billion multiply-adds with 51 MB of images.`)
	p.Text(`All versions have the same images and filters. The first four compute float32 from float32, images as (image, channel, row, column). Times are of the four 3 x 3 layers of ResNet-50, which have
		equally many operations: each has twice the channels of the one before on half its side.`)
	return l
}

// inputs returns the operands of a version.
func (l *ladder) inputs(version int, c gemm.Conv) [][]byte {
	images, filters := l.images[:c.Images*c.Channels*c.Rows.In*c.Columns.In], l.filters[:c.Filters*c.Channels*9]
	if version < last {
		return [][]byte{kernels.Bytes(images), kernels.Bytes(filters)}
	}
	stored, plane := make([]uint16, len(images)), c.Rows.In*c.Columns.In
	for i, v := range images {
		at := int64(i) / plane
		stored[at/c.Channels*c.Channels*plane+int64(i)%plane*c.Channels+at%c.Channels] = expr.ToHalf(expr.BF16, v)
	}
	return [][]byte{kernels.Bytes(stored), kernels.Bytes(filters)}
}

// check compares some outputs with the definition in float64.
func (l *ladder) check(version int, c gemm.Conv, out []byte) error {
	plane := c.Rows.Out() * c.Columns.Out()
	count, tolerance := c.Images*c.Filters*plane, 0x1p-18
	for n := range int64(200) {
		at := n * 104729 % count
		image, f, p := at/plane/c.Filters, at/plane%c.Filters, at%plane
		want, size := 0.0, 0.0
		for ch := range c.Channels {
			for i := range int64(9) {
				y, x := p/c.Columns.Out()+i/3-1, p%c.Columns.Out()+i%3-1
				if y >= 0 && y < c.Rows.In && x >= 0 && x < c.Columns.In {
					term := float64(l.filters[(f*c.Channels+ch)*9+i]) * float64(l.images[((image*c.Channels+ch)*c.Rows.In+y)*c.Columns.In+x])
					want, size = want+term, size+math.Abs(term)
				}
			}
		}
		var got float64
		if version < last {
			got = float64(kernels.Elements[float32](out)[at])
		} else {
			got, tolerance = float64(expr.FromHalf(expr.BF16, kernels.Elements[uint16](out)[(image*plane+p)*c.Filters+f])), 0x1p-8
		}
		if !(math.Abs(got-want) <= tolerance*size) {
			return fmt.Errorf("output %d of filter %d of image %d of %v is %v, want %v", p, f, image, c, got, want)
		}
	}
	return nil
}

// step runs a version here, checks it, and times it.
func (l *ladder) step(version int) {
	here := conv(struct{ channels, side int }{l.Size(128, 32, 8), l.Size(28, 14, 6)}, l.Size(4, 2, 1))
	notebook.Check(l.check(version, here, l.Output(notebook.Must(versions.Conv(l.Target(), version, here)), l.inputs(version, here))))
	for _, layer := range layers {
		c := conv(layer, l.Timed(64, 1))
		plan := func() *kernels.Plan { return notebook.Must(versions.Conv(l.Target(), version, c)) }
		key := fmt.Sprintf("version %d, %d channels", version, layer.channels)
		l.us[version] = append(l.us[version], l.Measure(key, "us", func() float64 {
			return l.MeanTime(plan(), l.inputs(version, c), 7, func(out []byte) error { return l.check(version, c, out) })
		}).Value)
		l.bytes[version] = append(l.bytes[version], l.Measure(key+", memory", "MB", func() float64 { return float64(plan().Scratch) / 1e6 }).Value)
	}
	gain, of := "", layers[mainLayer]
	if version > 1 {
		gain = fmt.Sprintf(", %s times as fast as the step before", figure.Number(l.us[version-1][mainLayer]/l.us[version][mainLayer]))
	}
	l.Text("%d channels of %d x %d: %v, %s TFLOP/s%s. %s MB of memory beside images, filters and outputs.", of.channels, of.side, of.side, notebook.In(l.us[version][mainLayer], "us"), figure.Number(l.rate(version, mainLayer)), gain,
		figure.Number(l.bytes[version][mainLayer]))
}

// rate is the rate of a version in TFLOP/s.
func (l *ladder) rate(version, layer int) float64 {
	n, side := float64(layers[layer].channels), float64(layers[layer].side)
	return 2 * 64 * side * side * n * n * 9 / l.us[version][layer] / 1e6
}

func (l *ladder) compare() {
	l.Heading("All steps side by side")
	speed := figure.Table{Caption: "TFLOP/s of layers of ResNet-50, 64 images", Header: []string{"version"}}
	memory := figure.Table{Caption: "MB of memory beside images, filters and outputs", Header: []string{"version"}}
	bars := figure.Bars{Title: "Convolutions of 3 x 3 by the channels", Label: "TFLOP/s", Log: true, Series: []figure.BarSeries{{Colour: figure.Blue, Name: "64 channels"}, {Colour: figure.Amber, Name: "512 channels"}}}
	for _, layer := range layers {
		name := fmt.Sprintf("%d, %d x %d", layer.channels, layer.side, layer.side)
		speed.Header, memory.Header = append(speed.Header, name), append(memory.Header, name)
	}
	for i, doc := range versions.Docs("Conv") {
		name := fmt.Sprintf("%d: %s", i+1, doc.Name)
		rates, sizes := []any{name}, []any{name}
		for k := range layers {
			rates, sizes = append(rates, l.rate(i+1, k)), append(sizes, l.bytes[i+1][k])
		}
		speed.Add(rates...)
		memory.Add(sizes...)
		bars.Add(name, l.rate(i+1, 0), l.rate(i+1, len(layers)-1))
	}
	l.Table(speed)
	l.Table(memory)
	l.Figure("steps", "The rate of each version on the layers with the fewest and with the most channels; longer is better.", bars)
	l.Text("`ops.Conv2d`" + ` is step 4 on an H100, where that is faster than step 3, and step 3 elsewhere. In a program under Mixed the compiler stores what is between convolutions as step 5 has it, and maps, pooling
		and sums run in that order. Both gradients are computed in the same ways: that by the images is a convolution of the gradient by the outputs, that by the filters a product over all pixels.`)
}

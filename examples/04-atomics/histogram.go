package main

import (
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/versions"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ascii is the number of cells: the 128 codes of ASCII. Bytes above are not counted.
var ascii = basic.Bins{N: 128, Lo: 0, Hi: 128}

// The grid of the versions 1 and 2.
const threads, blocks = 128, 32 * 80

// version plans a version of the histogram on this page's device; the last one on
// the op's own grid.
func version(p *notebook.Page, v int, n, blocks int, bins basic.Bins) *kernels.Plan {
	return notebook.Must(versions.HistogramGrid(p.Target(), kernels.Uint8, v, int64(n), bins, blocks, threads))
}

// plain is the histogram by the plainest loop.
func plain(text []byte) []int64 {
	counts := make([]int64, ascii.N)
	for _, b := range text {
		if int(b) < len(counts) {
			counts[b]++
		}
	}
	return counts
}

// check compares a histogram with the plain one.
func check(name string, got, want []int64) error {
	for k := range want {
		if got[k] != want[k] {
			return fmt.Errorf("%s: counted %q %d times, want %d", name, rune(k), got[k], want[k])
		}
	}
	return nil
}

// count counts the characters of the text by all versions.
func count(p *notebook.Page, text letters) {
	p.Heading("A histogram")
	want := plain(text.bytes)
	p.Text(`How often does each of the 128 ASCII characters occur in %s, repeated to %s MB? Every character adds one to one of 128 cells, so threads meet
		at a cell whenever they have the same character, which they often have: %s %% of this text are spaces or e's.`, text.from,
		figure.Number(float64(len(text.bytes))/1e6), figure.Number(100*float64(want[' ']+want['e'])/float64(len(text.bytes))))
	loop := p.Time("Go loop", func() { notebook.Check(check("Go loop", plain(text.bytes), want)) })
	body := basic.Histogram(kernels.HostDevice(), kernels.Uint8, int64(len(text.bytes)), ascii)
	host := p.Time("Go body", func() {
		notebook.Check(check("Go body", kernels.Elements[int64](notebook.OnHost(body, text.bytes)), want))
	})
	t := figure.Table{Caption: fmt.Sprintf("Histogram of %d characters", len(text.bytes)), Header: []string{"by", "may meet at a cell", "time", "GB/s", "faster than the Go loop"}}
	add := func(name, meet string, us float64) {
		t.Add(name, meet, notebook.In(us, "us"), float64(len(text.bytes))/us/1e3, 1000*loop.Value/us)
	}
	add("this host: a Go loop", "", 1000*loop.Value)
	add("this host: the op's Go body", "", 1000*host.Value)

	docs := versions.Docs("Histogram")
	why := []string{
		fmt.Sprintf(`In the first version, all threads of a grid of %d blocks of %d meet at the cells in global memory. The memory does one addition to a
			cell after the other.`, blocks, threads),
		fmt.Sprintf(`In the second, each block has cells of its own in shared memory, close to its multiprocessor, and adds them to those of the grid when it
			is done: %d threads meet instead of %d. If at each moment they are spread evenly over the cells, %d threads want a cell of global memory at a time in the first
			version, and %d blocks in the second, where each comes to a cell once.`, threads, blocks*threads, blocks*threads/ascii.N, blocks/ascii.N),
		`In the third, even the 32 lanes of a warp keep apart. Shared memory has 32 banks, each of which serves one lane at a time. If cell k has 32
			columns, side by side, and lane l counts in column l, then every lane has a bank to itself, whatever the characters are. With 256 cells
			that is 32 KB, which a block of 1024 threads shares.`,
	}
	show := [][]string{{"histogram.cuh", "Range", "histogram_global"}, {"versions/histogram.cu", "histogram_shared"},
		{"histogram.cu", "each_sixteen", "histogram_columns", "add_columns"}}
	meet := []string{fmt.Sprintf("%d threads", blocks*threads), fmt.Sprintf("%d threads", threads), "32 warps"}
	for v := 1; v <= versions.HistogramVersions; v++ {
		p.Text("%s", why[v-1])
		p.Source(show[v-1][0], show[v-1][1:]...)
		plan := version(p, v, len(text.bytes), blocks, ascii)
		ran := p.Run(fmt.Sprintf("text, version %d", v), plan, [][]byte{text.bytes}, 50)
		notebook.Check(check(plan.Op, kernels.Elements[int64](ran.Out), want))
		add(fmt.Sprintf("GPU, version %d: %s", v, docs[v-1].Name), meet[v-1], ran.Mean.Value)
	}
	p.Table(t)
	if p.GPU() == nil && text.given {
		p.Text("The GPU's recorded times, here and below, are of the text that is taken without -text, as long as this one.")
	}
	p.Text(`All counts are equal to those of the loop, in every run: whole numbers add up to the same in any order. The GPU's times include the
		launch that clears the counts; the text is in the device's memory, in several copies that take turns so that no cache helps.`)
}

// asOp counts by a Gorgonia graph.
func asOp(p *notebook.Page, text letters) {
	p.Heading("The same as an op")
	p.Text("In a graph the histogram is an op like any other, of bytes, integers or floating-point numbers, with int64 counts:")
	p.GoSource(`g := gorgonia.NewGraph()
x := gorgonia.NewVector(g, tensor.Byte, gorgonia.WithShape(len(text)), gorgonia.WithValue(tensor.New(tensor.WithBacking(text))))
counts, err := ops.Histogram(x, 128, 0, 128) // 128 bins over 0 <= x < 128
vm, err := stheno.NewVM(g)                   // the GPU if there is one
err = vm.RunAll()`)
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Byte, gorgonia.WithName("text"), gorgonia.WithShape(len(text.bytes)), gorgonia.WithValue(tensor.New(tensor.WithBacking(text.bytes))))
	counts := notebook.Must(ops.Histogram(x, ascii.N, ascii.Lo, ascii.Hi))
	vm := notebook.Must(cudaops.NewVM(g, p.On()))
	defer vm.Close()
	notebook.Check(vm.RunAll())
	notebook.Check(check("the graph", counts.Value().Data().([]int64), plain(text.bytes)))
	p.Text("It has no gradient: a count does not change when an element moves a little, and jumps when it crosses the edge of a bin.")
}

// bars draws how often the letters occur.
func bars(p *notebook.Page, text letters) {
	p.Heading("Letters")
	counts := plain(text.bytes)
	all, most := 0.0, 'a'
	for k := range 26 {
		all += float64(counts['a'+k] + counts['A'+k])
		if r := rune('a' + k); counts[r] > counts[most] {
			most = r
		}
	}
	if all == 0 {
		p.Text("The text has no letters.")
		return
	}
	names := strings.Split("abcdefghijklmnopqrstuvwxyz", "")
	lower, upper := make([]float64, 26), make([]float64, 26)
	for k := range 26 {
		lower[k], upper[k] = 100*float64(counts['a'+k])/all, 100*float64(counts['A'+k])/all
	}
	letters := figure.Bars{Title: "Letters of the text", Label: "share of all letters, %", Standing: true, Names: names, Series: []figure.BarSeries{
		{Name: "lower case", Colour: figure.Blue, Values: lower}, {Name: "upper case", Colour: figure.Amber, Values: upper},
	}}
	p.Figure("letters", fmt.Sprintf("How often each letter occurs in %s. The most frequent one is %c, %s %% of all letters.", text.from, most,
		figure.Number(lower[most-'a'])), letters)
}

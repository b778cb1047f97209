package main

import (
	"fmt"
	"image/color"
	"math"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"github.com/stheno-ml/stheno/kernels/window"
)

// versionsOf are the names of the versions of an op.
func versionsOf(op string) (names []string) {
	for _, v := range versions.Docs(op) {
		names = append(names, v.Name)
	}
	return names
}

// windows is the section on sums over a sliding window.
func windows(p *notebook.Page) {
	n, of := p.Size(1<<28, 1<<20, 1<<12), p.Timed(1<<28, 1<<12)
	names := versionsOf("WindowSum")
	p.Heading("A sliding window")
	p.Text(`Each output is the sum of the 2 radius + 1 inputs around it; n outputs take n + 2 radius inputs. With one thread per output, neighbours
		read nearly the same inputs: at radius 2 each element is wanted five times. Version 1 lets them.`)
	p.Source("versions/windowsum.cu", "simple")
	p.Text(`Version 2 has the threads of a block fetch together what all of them need, 256 + 2 radius elements, into the multiprocessor's shared
		memory. After the barrier all of it is there. The elements at the end belong to the windows of the last threads. A guard by the number of outputs
		would leave them out, since there are 2 radius more inputs than outputs; it must ask for inputs.`)
	p.Source("versions/windowsum.cu", "shared")
	p.Text(`Version 3 is the op itself, %s. Narrow windows it sums straight from loads of 16 bytes, several outputs a thread. Wide ones it
		makes of sums of chunks, which neighbours share, so that its time hardly grows with the radius.`, "`windowsum.cu`")

	run := windowRun{p: p}
	const radius = 2
	us := make([]float64, len(names))
	for v := range names {
		us[v] = run.time(v+1, radius, of, 21)
	}
	// On the host: the Go body of all versions.
	hostPlan := notebook.Must(versions.WindowSum(kernels.HostDevice(), kernels.Float32, 2, 1, int64(n+2*radius), radius, window.WindowValid))
	out := make([]byte, hostPlan.Out)
	body := p.Time("window, host", func() { notebook.Check(hostPlan.Run([][]byte{kernels.Bytes(run.input(n, radius))}, out, nil)) })
	notebook.Check(checkWindow(radius, run.input(n, radius), out))
	t := figure.Table{Caption: fmt.Sprintf("Windows of 5 (radius 2) over %d float32; the rate counts every input and output once", of),
		Header: []string{"version", "time", "rate", "gain"}}
	for v, name := range names {
		t.Add(fmt.Sprintf("%d: %s", v+1, name), notebook.In(us[v], "us"), rate(8*float64(of), us[v], "GB/s"), gain(us[0], us[v]))
	}
	t.Add(fmt.Sprintf("CPU: the Go body, on %d", n), body, rate(8*float64(n), 1000*body.Value, "GB/s"))
	p.Table(t)
	ch, at := run.byRadius(names, of/4)
	p.Figure("windows", "Time against the width of the window. The plain versions add up every window anew.", ch)
	p.Text(`At radius 2 the first-level cache does by itself what shared memory does by hand: the inputs come from memory once in both. By hand it takes one
		more trip and two barriers, with one load of a thread under way at a time: version 2 is %s as fast as version 1. What the
		fast version gains, %s over the simple one, comes from fewer and wider loads. At radius 512 each output wants 1025 inputs, and not adding them anew is worth %s.`,
		gain(us[0], us[1]), gain(us[0], us[2]), gain(at[[2]int{0, 512}], at[[2]int{2, 512}]))
}

// windowRun times the versions of WindowSum, on parts of one input.
type windowRun struct {
	p *notebook.Page
	x []float32
}

// input returns the input for n outputs.
func (w *windowRun) input(n, radius int) []float32 {
	if len(w.x) < n+2*radius {
		w.x = fill[float32](n+2*radius, 3)
	}
	return w.x[:n+2*radius]
}

// time returns the microseconds that a version takes for n outputs.
func (w *windowRun) time(version, radius, n, runs int) float64 {
	return w.p.Measure(fmt.Sprintf("window, n %d, radius %d, version %d", n, radius, version), "us", func() float64 {
		plan := notebook.Must(versions.WindowSum(w.p.Target(), kernels.Float32, version, 1, int64(n+2*radius), int64(radius), window.WindowValid))
		x := w.input(n, radius)
		return w.p.MeanTime(plan, [][]byte{kernels.Bytes(x)}, runs, func(out []byte) error { return checkWindow(radius, x, out) })
	}).Value
}

// byRadius draws the time of n outputs against the radius. at has the times, by the index
// of the version and the radius.
func (w *windowRun) byRadius(names []string, n int) (ch figure.Chart, at map[[2]int]float64) {
	ch = figure.Chart{Title: fmt.Sprintf("Window sums of %d float32", n), XLabel: "2 radius + 1", YLabel: "time, µs", Log: true, LogX: true}
	at = map[[2]int]float64{}
	for v := range names {
		s := figure.Series{Name: names[v], Colour: []color.RGBA{figure.Red, figure.Amber, figure.Blue}[v]}
		for _, radius := range []int{0, 1, 2, 4, 8, 32, 128, 512} {
			t := w.time(v+1, radius, n, 7)
			s.X, s.Y = append(s.X, float64(2*radius+1)), append(s.Y, t)
			at[[2]int{v, radius}] = t
		}
		ch.Series = append(ch.Series, s)
	}
	return ch, at
}

// checkWindow compares 700 outputs at random places, and the last 300, with plain sums.
func checkWindow(radius int, x []float32, out []byte) error {
	got := kernels.Elements[float32](out)
	if len(got) != len(x)-2*radius {
		return fmt.Errorf("got %d outputs, want %d", len(got), len(x)-2*radius)
	}
	for k := range 1000 {
		i := k * 2654435761 % len(got)
		if k < 300 {
			i = max(len(got)-1-k, 0)
		}
		want := 0.0
		for _, v := range x[i : i+2*radius+1] {
			want += float64(v)
		}
		if math.Abs(float64(got[i])-want) > 1e-6*float64(2*radius+1) {
			return fmt.Errorf("output %d of radius %d is %v, want %v", i, radius, got[i], want)
		}
	}
	return nil
}

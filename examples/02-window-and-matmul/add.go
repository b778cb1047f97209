package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// vectors is the section on adding vectors by hand.
func vectors(p *notebook.Page) {
	n, of := p.Size(1<<26, 1<<22, 1<<14), p.Timed(1<<26, 1<<14)
	p.Heading("Two vectors, by hand")
	p.Text(`The first kernel that one writes: thread i adds element i. Blocks of 512 threads, as many as it takes; the last block has threads
		with nothing to do.`)
	p.Source("versions/add.cu", "add_simple")
	p.Text(`A graph of ops does the host's side by itself. Spelled out, it is five steps, here with a ` + "`cudaops.Session`" + `, which is a device
		used by hand. Opened on the host, the same program runs the kernel's Go body.`)
	p.GoFunction("byhand.go", "addByHand")

	a, b, out := fill[float32](n, 1), fill[float32](n, 2), make([]float32, n)
	session := p.Session()
	defer session.Close()
	var steps []time.Time
	for range 3 { // the first run starts the device and loads the kernel
		steps = notebook.Must(addByHand(session, out, a, b))
	}
	for i := range out {
		if out[i] != a[i]+b[i] {
			notebook.Fail("element %d of the sum is %v, want %v", i, out[i], a[i]+b[i])
		}
	}
	total := fiveSteps(p, of, steps)
	var kernel [2]notebook.Measured
	for i := range kernel {
		kernel[i] = p.Measure(fmt.Sprintf("vectors, version %d", i+1), "us", func() float64 {
			plan := notebook.Must(versions.Add(p.Target(), kernels.Float32, i+1, int64(n)))
			return p.MeanTime(plan, [][]byte{kernels.Bytes(a), kernels.Bytes(b)}, 21, func(got []byte) error {
				if !slices.Equal(kernels.Elements[float32](got), out) {
					return fmt.Errorf("version %d of Add differs from the sum by hand", i+1)
				}
				return nil
			})
		})
	}
	host := p.Time("vectors, host", func() {
		for i := range out {
			out[i] = a[i] + b[i]
		}
	})
	bytes := 12 * float64(of)
	p.Text(`The kernel alone, by the device's clock: %v, %s; the op's own kernel: %v, %s. All five steps take %s times as long as the kernel. (A Go loop
		on one core of this machine adds %d elements in %v.)`,
		kernel[0], rate(bytes, kernel[0].Value, "GB/s"), kernel[1], rate(bytes, kernel[1].Value, "GB/s"),
		figure.Number(total/kernel[0].Value), n, host)
	chained(p, session, a, b, of)
}

// fiveSteps shows how long the steps of addByHand took, from the times between them, and
// returns their sum in microseconds.
func fiveSteps(p *notebook.Page, of int, steps []time.Time) (total float64) {
	names := []string{"allocate", "copy to the device", "launch, wait", "copy back", "free"}
	times := make([]float64, len(names))
	for i, name := range names {
		times[i] = p.Measure("vectors, "+name, "us", func() float64 { return max(float64(steps[i+1].Sub(steps[i]))/1e3, 0.01) }).Value
		total += times[i]
	}
	t := figure.Table{Caption: fmt.Sprintf("Sum of two vectors of %d float32, by hand", of), Header: []string{"step", "time", "share"}}
	for i, name := range names {
		t.Add(name, notebook.In(times[i], "us"), notebook.In(100*times[i]/total, "%"))
	}
	p.Table(t)
	p.Figure("vectors", "The five steps of one sum of vectors on the GPU. The copies go over the bus between host and device.",
		figure.Bars{Title: "Where the time goes", Label: "time, µs", Names: names, Series: []figure.BarSeries{{Colour: figure.Blue, Values: times}}})
	return total
}

// chained measures the time saved by keeping vectors on the device.
func chained(p *notebook.Page, session *cudaops.Session, a, b []float32, of int) {
	const k = 10
	n := len(a)
	p.Text("Vectors that stay on the device pay for the copies once, however many kernels work on them. Here b is added to a %d times in a row, once with all five steps for each addition, and once like this:", k)
	p.GoFunction("byhand.go", "resident")
	out := make([]float32, n)
	check := func(name string) {
		for i := range out {
			if out[i] != a[i]+k*b[i] { // of few bits: nothing is rounded
				notebook.Fail("%s: element %d is %v, want %v", name, i, out[i], a[i]+k*b[i])
			}
		}
		clear(out)
	}
	t := figure.Table{Caption: fmt.Sprintf("%d additions of %d float32 in a row, by the host's clock", k, of), Header: []string{"way", "time", "per addition"}}
	add := func(name string, us float64) {
		t.Add(name, notebook.Micros(us), notebook.Micros(us/k))
	}
	var us [2]float64
	for i, way := range []struct {
		name string
		run  func(s *cudaops.Session, out, a, b []float32, k int) error
	}{{"copied for each", copyEach}, {"kept on the device", resident}} {
		var took time.Duration
		for range 2 { // the first run is not timed
			start := time.Now()
			notebook.Check(way.run(session, out, a, b, k))
			took = time.Since(start)
			check(way.name)
		}
		us[i] = p.Measure(fmt.Sprintf("vectors, %d additions, %s", k, way.name), "us", func() float64 { return float64(took) / 1e3 }).Value
		add("GPU, "+way.name, us[i])
	}
	host := p.Time("vectors, additions on the host", func() {
		copy(out, a)
		for range k {
			for i := range out {
				out[i] += b[i]
			}
		}
	})
	check("host")
	name := "CPU: a Go loop on one core"
	if n != of {
		name += fmt.Sprintf(", of %d elements", n)
	}
	add(name, 1000*host.Value)
	p.Table(t)
	p.Text(`Kept on the device, %d additions take %s times less than with copies for each: what remains is one way there and back. That is what a graph's
		machine sees to by itself.`, k, figure.Number(us[0]/us[1]))
}

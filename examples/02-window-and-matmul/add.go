package main

import (
	_ "embed"
	"fmt"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

//go:embed byhand.go
var byHand string

//go:embed chain.go
var chainSource string

// vectors is the section on adding vectors by hand.
func vectors(p *notebook.Page) (err error) {
	n, of := p.Size(1<<26, 1<<22, 1<<14), p.Timed(1<<26, 1<<14)
	p.Heading("Two vectors, by hand")
	p.Text(`The first kernel that one writes: thread i adds element i. Blocks of 512 threads, as many as it takes; the last block has threads
		with nothing to do.`)
	if err := p.Sources("versions/add.cu", "add_simple"); err != nil {
		return err
	}
	p.Text(`A graph of ops does the host's side by itself. Spelled out, it is five steps, here with a ` + "`cudaops.Session`" + `, which is a device
		used by hand. Opened on the host, the same program runs the kernel's Go body.`)
	if err := p.GoFunction(byHand, "addByHand"); err != nil {
		return err
	}

	a, b, out := fill[float32](n, 1), fill[float32](n, 2), make([]float32, n)
	session := cudaops.OpenHost()
	if p.GPU() != nil {
		if session, err = cudaops.Open(p.GPU().Ordinal); err != nil {
			return err
		}
	}
	defer session.Close()
	var steps []time.Time
	for range 3 { // the first run starts the device and loads the kernel
		if steps, err = addByHand(session, out, a, b); err != nil {
			return err
		}
	}
	for i := range out {
		if out[i] != a[i]+b[i] {
			return fmt.Errorf("element %d of the sum is %v, want %v", i, out[i], a[i]+b[i])
		}
	}
	total, err := fiveSteps(p, of, steps)
	if err != nil {
		return err
	}
	var kernel [2]notebook.Measured
	for i := range kernel {
		kernel[i], err = onGPU(p, fmt.Sprintf("vectors, version %d", i+1), notebook.Case{}, 21,
			func() (*kernels.Plan, error) {
				return versions.Add(p.Target(), kernels.Float32, i+1, int64(n))
			},
			func() [][]byte { return [][]byte{kernels.Bytes(a), kernels.Bytes(b)} },
			func(o []byte) error {
				for i, v := range kernels.Elements[float32](o) {
					if v != out[i] {
						return fmt.Errorf("element %d is %v, want %v", i, v, out[i])
					}
				}
				return nil
			})
		if err != nil {
			return err
		}
	}
	host, err := p.Time("vectors, host", func() error {
		for i := range out {
			out[i] = a[i] + b[i]
		}
		return nil
	})
	if err != nil {
		return err
	}
	bytes := 12 * float64(of)
	p.Text(`The kernel alone, by the device's clock: %v, %s; the op's own kernel: %v, %s. All five steps take %s times as long as the kernel. (A Go loop
		on one core of this machine adds %d elements in %v.)`,
		kernel[0], rate(bytes, kernel[0].Value, "GB/s"), kernel[1], rate(bytes, kernel[1].Value, "GB/s"),
		figure.Number(total/kernel[0].Value), n, host)
	return chained(p, session, a, b, of)
}

// fiveSteps shows how long the steps of addByHand took, from the times between them, and
// returns their sum in microseconds.
func fiveSteps(p *notebook.Page, of int, steps []time.Time) (total float64, err error) {
	names := []string{"allocate", "copy to the device", "launch, wait", "copy back", "free"}
	times := make([]float64, len(names))
	for i, name := range names {
		m, err := p.Measure("vectors, "+name, "us", func() (float64, error) {
			return max(float64(steps[i+1].Sub(steps[i]))/1e3, 0.01), nil
		})
		if err != nil {
			return 0, err
		}
		times[i] = m.Value
		total += m.Value
	}
	t := figure.Table{Caption: fmt.Sprintf("Sum of two vectors of %d float32, by hand", of), Header: []string{"step", "time", "share"}}
	for i, name := range names {
		t.Rows = append(t.Rows, []string{name, notebook.Measured{Value: times[i], Unit: "us"}.String(), notebook.Measured{Value: 100 * times[i] / total, Unit: "%"}.String()})
	}
	p.Table(t)
	return total, p.Figure("vectors", "The five steps of one sum of vectors on the GPU. The copies go over the bus between host and device.",
		figure.Bars{Title: "Where the time goes", Label: "time, µs", Names: names, Series: []figure.BarSeries{{Colour: figure.Blue, Values: times}}})
}

// chained measures the time saved by keeping vectors on the device.
func chained(p *notebook.Page, session *cudaops.Session, a, b []float32, of int) error {
	const k = 10
	n := len(a)
	p.Text("Vectors that stay on the device pay for the copies once, however many kernels work on them. Here b is added to a %d times in a row, once with all five steps for each addition, and once like this:", k)
	if err := p.GoFunction(chainSource, "resident"); err != nil {
		return err
	}
	out := make([]float32, n)
	check := func(name string) error {
		for i := range out {
			if out[i] != a[i]+k*b[i] { // of few bits: nothing is rounded
				return fmt.Errorf("%s: element %d is %v, want %v", name, i, out[i], a[i]+k*b[i])
			}
		}
		clear(out)
		return nil
	}
	t := figure.Table{Caption: fmt.Sprintf("%d additions of %d float32 in a row, by the host's clock", k, of), Header: []string{"way", "time", "per addition"}}
	add := func(name string, us float64) {
		t.Rows = append(t.Rows, []string{name, notebook.Micros(us).String(), notebook.Micros(us / k).String()})
	}
	var us [2]float64
	for i, way := range []struct {
		name string
		run  func(s *cudaops.Session, out, a, b []float32, k int) error
	}{{"copied for each", apart}, {"kept on the device", resident}} {
		var took time.Duration
		for range 2 { // the first run is not timed
			start := time.Now()
			if err := way.run(session, out, a, b, k); err != nil {
				return err
			}
			took = time.Since(start)
			if err := check(way.name); err != nil {
				return err
			}
		}
		m, err := p.Measure(fmt.Sprintf("vectors, %d additions, %s", k, way.name), "us", func() (float64, error) { return float64(took) / 1e3, nil })
		if err != nil {
			return err
		}
		us[i] = m.Value
		add("GPU, "+way.name, us[i])
	}
	host, err := p.Time("vectors, additions on the host", func() error {
		copy(out, a)
		for range k {
			for i := range out {
				out[i] += b[i]
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := check("host"); err != nil {
		return err
	}
	name := "CPU: a Go loop on one core"
	if n != of {
		name += fmt.Sprintf(", of %d elements", n)
	}
	add(name, 1000*host.Value)
	p.Table(t)
	p.Text(`Kept on the device, %d additions take %s times less than with copies for each: what remains is one way there and back. That is what a graph's
		machine sees to by itself.`, k, figure.Number(us[0]/us[1]))
	return nil
}

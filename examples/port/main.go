package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/hostblas"
	G "gorgonia.org/gorgonia"
)

// stage is the program after a step of the page.
type stage struct {
	name string
	file string // with its code
	run  func(d data, epochs int, seed uint64, opts ...cudaops.Option) (losses []float32, err error)
}

var stages = []stage{
	{"Gorgonia's tape machine", "tape.go", func(d data, epochs int, seed uint64, _ ...cudaops.Option) ([]float32, error) {
		return onTape(d, epochs, seed)
	}},
	{"`stheno.NewVM`", "machine.go", onStheno},
	{"`cudaops.Train`", "train.go", withTrain},
	{"`train.Run`", "loop.go", inLoop},
	{"the data set on the device", "resident.go", withResident},
}

func main() {
	device := flag.String("device", "auto", "where to run Stheno's machine: auto, gpu or cpu")
	seconds := flag.Float64("seconds", 6, "how long each program trains")
	dir := flag.String("record", "", "folder of the record to write, such as bench/results/port")
	flag.Parse()
	if flag.NArg() > 0 || *seconds <= 0 {
		fmt.Fprintf(os.Stderr, "port: got -seconds %g and arguments %q, want a time above 0 and flags only\n", *seconds, flag.Args())
		os.Exit(2)
	}
	r, err := measure(os.Stdout, *device, time.Duration(*seconds*float64(time.Second)))
	if err == nil && *dir != "" {
		err = r.write(*dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "port:", err)
		os.Exit(1)
	}
}

// measure times all stages on the host and, where it is chosen and there, on the GPU.
func measure(w io.Writer, device string, long time.Duration) (r record, err error) {
	gpu, where, err := notebook.Device(device)
	if err != nil {
		return r, err
	}
	fmt.Fprintf(w, "%s\n784-512-512-10, batches of %d, steps per second\n\n", where, batch)
	r = record{Cores: runtime.GOMAXPROCS(0), BLAS: hostblas.Describe(G.WhichBLAS()), Date: time.Now().Format(time.DateOnly)}
	if gpu != nil {
		r.GPU, r.Driver = gpu.Name, gpu.Driver
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "program\t%d cores\t%s\t\n", r.Cores, r.GPU)
	for i, s := range stages {
		var host, device float64
		if i > 0 || !G.CUDA { // Gorgonia's machine asks for a GPU in a build with the tag cuda
			if host, err = s.rate(long, cudaops.OnHost()); err != nil {
				return r, fmt.Errorf("%s: %w", s.file, err)
			}
		}
		if i > 0 && gpu != nil {
			if device, err = s.rate(long, cudaops.OnDevice(gpu.Ordinal)); err != nil {
				return r, fmt.Errorf("%s: %w", s.file, err)
			}
		}
		r.Host, r.Device = append(r.Host, host), append(r.Device, device)
		fmt.Fprintf(t, "%s\t%s\t%s\t\n", s.name, perSecond(host), perSecond(device))
	}
	return r, t.Flush()
}

// rate returns the steps per second of a stage once it is under way, the most of three tries: others
// may use the machine, too.
func (s stage) rate(long time.Duration, opts ...cudaops.Option) (best float64, err error) {
	for range 3 {
		r, err := s.try(long/3, opts...)
		if err != nil {
			return 0, err
		}
		best = max(best, r)
	}
	return best, nil
}

// try returns the rate of a training of at least that long, less one that is half as long.
func (s stage) try(long time.Duration, opts ...cudaops.Option) (float64, error) {
	d := newData(8, 1)
	var before time.Duration
	for epochs := 1; ; epochs *= 2 {
		start := time.Now()
		losses, err := s.run(d, epochs, 1, opts...)
		took := time.Since(start)
		if err != nil {
			return 0, err
		}
		if took > long && took > before {
			return float64(len(losses)/2) / (took - before).Seconds(), nil
		}
		before = took
	}
}

package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/command"
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
	seconds := flag.Float64("seconds", 6, "about how long each program trains on each device")
	dir := flag.String("record", "", "folder of the record to write, such as bench/results/port")
	command.Flags("port")
	if !(*seconds > 0) {
		command.Exit("port", command.Misused("-seconds is %g, want a time above 0", *seconds))
	}
	r, err := measure(os.Stdout, *device, newData(8, 1), time.Duration(*seconds*float64(time.Second)))
	if err == nil && *dir != "" {
		err = r.write(*dir)
	}
	command.Exit("port", err)
}

// measure times all stages on a data set, on the host and, where it is chosen and there, on the GPU.
func measure(w io.Writer, device string, d data, long time.Duration) (r record, err error) {
	gpu, where, err := notebook.Device(device)
	if err != nil {
		return r, err
	}
	fmt.Fprintf(w, "%s\n784-512-512-10, batches of %d, steps per second\n\n", where, batch)
	r = record{Cores: runtime.GOMAXPROCS(0), BLAS: hostblas.Describe(G.WhichBLAS()), Date: time.Now().Format(time.DateOnly)}
	if gpu != nil {
		r.GPU, r.Driver = gpu.Name, gpu.Driver
	}
	width := 0
	for _, s := range stages {
		width = max(width, len(s.name))
	}
	// A line is printed as soon as it is measured.
	line := func(name, host, device string) error {
		_, err := fmt.Fprintf(w, "%*s  %10s  %*s\n", width, name, host, max(10, len(r.GPU)), device)
		return err
	}
	if err := line("program", fmt.Sprintf("%d cores", r.Cores), r.GPU); err != nil {
		return r, err
	}
	for i, s := range stages {
		var host, device float64
		if i > 0 || !G.CUDA { // Gorgonia's machine asks for a GPU in a build with the tag cuda
			if host, err = s.rate(d, long, cudaops.OnHost()); err != nil {
				return r, fmt.Errorf("%s: %w", s.file, err)
			}
		}
		if i > 0 && gpu != nil {
			if device, err = s.rate(d, long, cudaops.OnDevice(gpu.Ordinal)); err != nil {
				return r, fmt.Errorf("%s: %w", s.file, err)
			}
		}
		r.Host, r.Device = append(r.Host, host), append(r.Device, device)
		if err := line(s.name, perSecond(host), perSecond(device)); err != nil {
			return r, err
		}
	}
	return r, nil
}

package main

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/hostblas"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// doctor reports what works here and what is missing. A machine without a GPU is healthy: it runs
// everything on the host.
type doctor struct{}

func (doctor) Help() string {
	return `Changes nothing and needs nothing. It prints a line each for:

  go          the Go version that built this program, and the processor cores that it uses
  kernels     how many kernel sources it carries compiled, and for how many ops
  products    the library that multiplies matrices on the host, and why if it is gonum's
  driver      NVIDIA's driver and the newest CUDA version that it supports
  device N    each GPU, by the number that --device and cudaops.OnDevice take
  calibrated  the calibration of a GPU, by "stheno calibrate"
  images      for which GPU architecture the kernels that run on it were compiled
  missing     what keeps a GPU, or all of them, from being used
  so          where stheno.NewVM runs graphs on this machine

It runs a small graph on each GPU that is new enough, and where stheno.NewVM runs graphs. The exit status is
0 if all of them compute it, which without a GPU is the host alone, and 1 if one fails: a GPU does
not answer, has no memory left or refuses the kernels, or graphs would run on the host and cannot, since
STHENO_BLAS names a library that cannot be used.`
}

// Run prints the lines.
func (doctor) Run(c *console) error {
	say := func(name, format string, a ...any) {
		fmt.Fprintf(c.out, "%-10s %s\n", name, fmt.Sprintf(format, a...))
	}
	say("go", "%s, %s/%s, %d cores in use", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
	say("kernels", "%d sources, %d ops", len(kernels.Builtin().Digests()), len(opspec.All()))
	say("products", "of matrices, on the host: %s", hostblas.Describe(nil))

	devices, err := cudaops.Devices()
	if len(devices) == 0 {
		say("device", "none")
		say("missing", "%v", err)
	} else {
		say("driver", "%s, supports CUDA %s", cmp.Or(devices[0].Driver, "of unknown version"), devices[0].CUDA)
	}
	var failed []error
	for i, d := range devices {
		say(fmt.Sprintf("device %d", i), "%s, compute capability %d.%d, %d multiprocessors, %.1f GiB, L2 %.0f MiB, shared memory of a block %d KiB",
			d.Name, d.Major, d.Minor, d.SMs, float64(d.Memory)/(1<<30), float64(d.L2)/(1<<20), d.SharedOptin>>10)
		if name := d.Calibration.Name(); name != "" {
			say("calibrated", "device %d by calibration %s, which the choice of kernels depends on", i, name)
		}
		if d.Uncalibrated != nil {
			say("missing", "device %d: calibration ignored: %v", i, d.Uncalibrated)
		}
		if d.Err != nil {
			say("missing", "device %d: %v", i, d.Err)
			continue
		}
		target, _, err := kernels.Target(d.Major, d.Minor)
		if err != nil {
			return err
		}
		say("images", "device %d runs the %s images", i, target)
		if err := runGraph(cudaops.OnDevice(i)); err != nil {
			say("missing", "device %d: %v", i, err)
			failed = append(failed, fmt.Errorf("device %d: %w", i, err))
		}
	}

	chosen := runGraph(cudaops.OnAny())
	switch {
	case chosen != nil && runGraph(cudaops.OnHost()) != nil:
		say("so", "no graph runs")
	case chosen != nil:
		say("so", "stheno.NewVM returns this error; with the option cudaops.OnHost() graphs run on the host")
	case len(devices) == 0:
		say("so", "every graph runs on the host, with the same results; a GPU needs NVIDIA's driver alone, no CUDA toolkit")
	case devices[0].Err != nil:
		say("so", "every graph runs on the host, with the same results")
	default:
		say("so", "graphs run on the GPU")
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return chosen
}

// runGraph runs a graph of a product and a sum, and returns an error if it cannot or the result is wrong.
func runGraph(where cudaops.Option) error {
	g := gorgonia.NewGraph()
	x := gorgonia.NodeFromAny(g, tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float32{1, 2, 3, 4})), gorgonia.WithName("x"))
	y, err := ops.MatMul(x, x)
	if err == nil {
		y, err = ops.Sum(y)
	}
	if err != nil {
		return err
	}
	vm, err := cudaops.NewVM(g, where, cudaops.Strict())
	if err != nil {
		return err
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return err
	}
	if got := y.Value().Data(); got != float32(54) {
		return fmt.Errorf("wrong result of a product and a sum on %s: got %v, want 54", vm.Device(), got)
	}
	return vm.Close()
}

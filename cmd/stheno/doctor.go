package main

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/hostblas"
	"github.com/stheno-ml/stheno/internal/opspec"
	"github.com/stheno-ml/stheno/kernels"
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
  images      for which GPU architecture the kernels that run on it were compiled
  missing     what keeps a GPU, or all of them, from being used
  so          where graphs run on this machine

The exit status is 0 where graphs run as they should, which without a GPU is on the host, and 1
where there is a GPU that does not answer, or graphs would run on the host and cannot: STHENO_BLAS
names a library that cannot be used.`
}

// Run prints the lines.
func (doctor) Run(c *console) error {
	_, noProducts := hostblas.For(nil) // where STHENO_BLAS names a library that cannot be used
	say := func(name, format string, a ...any) {
		fmt.Fprintf(c.out, "%-10s %s\n", name, fmt.Sprintf(format, a...))
	}
	say("go", "%s, %s/%s, %d cores in use", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
	say("kernels", "%d sources, %d ops", len(kernels.Digests()), len(opspec.All()))
	say("products", "of matrices, on the host: %s", hostblas.Describe(nil))

	devices, err := cudaops.Devices()
	if len(devices) == 0 {
		say("device", "none")
		say("missing", "%v", err)
		if !errors.Is(err, cudaops.ErrNoDevice) { // a GPU that does not answer is a fault
			say("so", "stheno.NewVM returns this error; with the option cudaops.OnHost() graphs run on the host")
			return err
		}
		return onHost(say, noProducts, "; a GPU needs NVIDIA's driver alone, no CUDA toolkit")
	}
	say("driver", "%s, supports CUDA %s", cmp.Or(devices[0].Driver, "of unknown version"), devices[0].CUDA)
	for i, d := range devices {
		say(fmt.Sprintf("device %d", i), "%s, compute capability %d.%d, %d multiprocessors, %.1f GiB, L2 %.0f MiB, shared memory of a block %d KiB",
			d.Name, d.Major, d.Minor, d.SMs, float64(d.Memory)/(1<<30), float64(d.L2)/(1<<20), d.SharedOptin>>10)
		if d.Err != nil {
			say("missing", "device %d: %v", i, d.Err)
			continue
		}
		target, _, err := kernels.Target(d.Major, d.Minor)
		if err != nil {
			return err
		}
		say("images", "device %d runs the %s images", i, target)
	}
	if err == nil {
		say("so", "graphs run on the GPU")
		return nil
	}
	return onHost(say, noProducts, "")
}

// onHost prints the conclusion for a machine where graphs run on the host, and returns the reason why
// they cannot.
func onHost(say func(name, format string, a ...any), err error, more string) error {
	if err != nil {
		say("so", "no graph runs")
		return err
	}
	say("so", "every graph runs on the host, with the same results%s", more)
	return nil
}

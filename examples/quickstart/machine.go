package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
)

// newMachine makes Stheno's machine for a graph, in the place of
// gorgonia.NewTapeMachine(g). stheno.NewVM(g) alone is what "auto" does.
func newMachine(g *G.ExprGraph, device string) (*cudaops.VM, error) {
	switch device {
	case "auto":
		return stheno.NewVM(g)
	case "gpu":
		return stheno.NewVM(g, cudaops.OnDevice(0))
	default: // cpu: describe checked the flag
		return stheno.NewVM(g, cudaops.OnHost())
	}
}

// describe says where newMachine's machines run, or why no GPU is used.
func describe(device string) (string, error) {
	host := fmt.Sprintf("Running on the host (%s/%s, %d cores)", runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
	switch device {
	case "auto", "gpu":
	case "cpu":
		return host + ", as -device says", nil
	default:
		return "", fmt.Errorf("-device is %q, want auto, gpu or cpu", device)
	}
	devices, err := stheno.Devices()
	if err == nil {
		err = devices[0].Err
	}
	if device == "auto" && errors.Is(err, stheno.ErrNoDevice) {
		return fmt.Sprintf("%s, on no GPU: %v", host, err), nil
	}
	if err != nil {
		return "", err
	}
	d := devices[0]
	_, target, _, err := kernels.Image("add", d.Major, d.Minor)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Running on %v with the kernel images for %s (digest %.12s)", d, target, kernels.Digest()), nil
}

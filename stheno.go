package stheno

import (
	"github.com/stheno-ml/stheno/cudaops"
	"gorgonia.org/gorgonia"
)

// Version is the version of Stheno.
const Version = "0.1.0"

// ErrNoDevice is wrapped by every error about a machine without a usable CUDA device.
var ErrNoDevice = cudaops.ErrNoDevice

// NewVM makes a machine that runs g on CUDA device 0 if it is usable, otherwise on the host. Options of package cudaops select
// another device:
//
//	stheno.NewVM(g, cudaops.OnDevice(1), cudaops.Strict())
func NewVM(g *gorgonia.ExprGraph, opts ...cudaops.Option) (*cudaops.VM, error) {
	return cudaops.NewVM(g, append([]cudaops.Option{cudaops.OnAny()}, opts...)...)
}

// Devices lists the CUDA devices of this machine. The error, which wraps [ErrNoDevice], explains why there is no device, or
// why no device is usable.
func Devices() ([]cudaops.Device, error) { return cudaops.Devices() }

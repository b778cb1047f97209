package stheno_test

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/suite"
)

// Every op of package ops has a Spec in internal/test/opspec: its cases, a float64 reference, a tolerance, inputs that it must refuse.
// These tests run all of them on all machines that there are: Gorgonia's tape and Lisp machines, Stheno on the host,
// Stheno on the GPU. What needs no machine, such as second derivatives, package suite tests itself.

// Values are those of the reference, twice the same bits; inputs stay as they were.
func TestMachines(t *testing.T) { suite.Values(t, suite.Machines()...) }

// The same of transposed, sliced and column-major inputs.
func TestStrides(t *testing.T) { suite.Strides(t, suite.Machines()...) }

// Constants that are in no graph stand for any inputs but one.
func TestConstants(t *testing.T) { suite.Constants(t, suite.Machines()...) }

// Symbolic and automatic gradients agree with differences.
func TestGradients(t *testing.T) { suite.Gradients(t, suite.Machines()...) }

// Bad inputs are errors that name the op and what is wrong.
func TestBadInput(t *testing.T) { suite.BadInput(t) }

// The Go bodies of the kernels compute the reference's values, planned for the host and for GPUs.
func TestPlans(t *testing.T) { suite.Plans(t) }

// The CUDA bodies compute the reference's values.
func TestKernels(t *testing.T) { suite.Kernels(t) }

// So they do on operands beyond 2^31 bytes, where STHENO_LARGE=1.
func TestLarge(t *testing.T) { suite.Large(t) }

// Every launch has the arguments that its entry point takes.
func TestLaunches(t *testing.T) { suite.Launches(t) }

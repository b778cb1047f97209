package cudaops

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stheno-ml/stheno/internal/hostblas"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// counting is gonum's BLAS, which counts products.
type counting struct {
	gonum.Implementation
	products *atomic.Int32
}

func (c counting) Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, to []float64, ldc int) {
	c.products.Add(1)
	c.Implementation.Dgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, to, ldc)
}

// Products on the host are made by the BLAS given to gorgonia.Use: Gorgonia's op on
// the host backend, and Stheno's op on any machine of Gorgonia's.
func TestUsersBLAS(t *testing.T) {
	own := G.WhichBLAS()
	defer G.Use(own)
	c := counting{products: new(atomic.Int32)}
	G.Use(c)
	g := G.NewGraph()
	a := G.NewMatrix(g, tensor.Float64, G.WithName("a"), G.WithShape(20, 30), G.WithInit(G.Gaussian(0, 1)))
	b := G.NewMatrix(g, tensor.Float64, G.WithName("b"), G.WithShape(30, 40), G.WithInit(G.Gaussian(0, 1)))
	testutil.Get[*G.Node](t)(G.Mul(a, b))
	vm := machine(t, g, OnHost())
	testutil.Do(t, vm.RunAll())
	if n := c.products.Load(); n != 1 {
		t.Errorf("G.Mul on the host backend made %d products by the user's BLAS, want 1", n)
	}
	testutil.Get[*G.Node](t)(ops.MatMul(a, b))
	tape := tapeMachine(t, g)
	defer tape.Close()
	testutil.Do(t, tape.RunAll())
	if n := c.products.Load(); n < 2 {
		t.Errorf("ops.MatMul on the tape machine made no product by the user's BLAS")
	}
}

// The report names the library that multiplies matrices on the host, if any does.
func TestReportSaysWhatMultiplies(t *testing.T) {
	own := G.WhichBLAS()
	defer G.Use(own)
	g := G.NewGraph()
	a := G.NewMatrix(g, tensor.Float64, G.WithName("a"), G.WithShape(20, 30), G.WithInit(G.Gaussian(0, 1)))
	b := G.NewMatrix(g, tensor.Float64, G.WithName("b"), G.WithShape(30, 40), G.WithInit(G.Gaussian(0, 1)))
	v := G.NewVector(g, tensor.Float64, G.WithName("v"), G.WithShape(30), G.WithInit(G.Gaussian(0, 1)))
	sums, c, d := testutil.Get[*G.Node](t)(G.Add(a, a)), testutil.Get[*G.Node](t)(G.Mul(a, b)), testutil.Get[*G.Node](t)(G.Mul(a, v))
	says := func(of *G.Node, want string) {
		t.Helper()
		r := machine(t, g, OnHost(), Outputs(of)).Report()
		if r.Products != want || want != "" && !strings.HasPrefix(r.String(), "products of matrices by "+want+"\n") {
			t.Errorf("the report says %q and begins with %.120q, want %q", r.Products, r, want)
		}
	}
	says(sums, "")
	says(c, hostblas.Describe(own))
	says(d, hostblas.Describe(own))
	G.Use(counting{products: new(atomic.Int32)})
	says(sums, "")
	says(c, "the BLAS given to gorgonia.Use, cudaops.counting")
}

// A machine on the host explains why, if a device was preferred.
func TestDeviceSaysWhy(t *testing.T) {
	g, a, b, _ := sum2(t, 2)
	testutil.Do(t, G.Let(a, vector(1, 2)))
	testutil.Do(t, G.Let(b, vector(1, 2)))
	vm := machine(t, g, OnAny())
	testutil.Do(t, vm.RunAll())
	name, report := vm.Device(), vm.Report().String()
	if on := vm.Report().Device; on == "host backend" {
		if !strings.HasPrefix(name, "host backend: ") || !strings.HasPrefix(report, name) {
			t.Errorf("Device returns %q and the report begins with %.100q, want why there is no device", name, report)
		}
	} else if name != on {
		t.Errorf("Device returns %q, want %q", name, on)
	}
	if name := machine(t, g, OnHost()).Device(); name != "host backend" {
		t.Errorf("Device returns %q, want host backend", name)
	}
}

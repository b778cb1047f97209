//go:build cuda

package tape_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// More graphs and ways to run them, for the programs of breakage_test.go.

func integers() model {
	g := G.NewGraph()
	a := G.NewScalar(g, tensor.Int, G.WithName("a"), G.WithValue(6))
	b := G.NewScalar(g, tensor.Int, G.WithName("b"), G.WithValue(7))
	return model{g: g, leaves: G.Nodes{a, b}, out: G.Nodes{ok(G.Mul(a, b))}}
}

// lessTensors has an op before the comparison and one beside it.
func lessTensors() model {
	g := G.NewGraph()
	x, y := input(g, "x", 77), input(g, "y", 77)
	h := ok(G.Tanh(x))
	return model{g: g, leaves: G.Nodes{x, y}, out: G.Nodes{ok(G.Lt(h, y, false)), ok(G.Add(h, y))}}
}

func lessScalars() model {
	g := G.NewGraph()
	s, r := scalarOf(g, tensor.Float64, "s", 0.25), scalarOf(g, tensor.Float64, "r", 0.75)
	return model{g: g, out: G.Nodes{ok(G.Lt(s, r, false)), ok(G.Gt(s, r, false))}}
}

func gAdd() model {
	g := G.NewGraph()
	x, y := input(g, "x", 77), input(g, "y", 77)
	return model{g: g, leaves: G.Nodes{x, y}, out: G.Nodes{ok(G.Add(x, y))}}
}

// squares sums the squares of a product up.
func squares(x, w, product *G.Node) model {
	return model{g: x.Graph(), leaves: G.Nodes{x, w}, out: G.Nodes{product, ok(ops.Sum(ok(ops.Add(product, ok(G.Square(product))))))}, grads: true}
}

func gMatVec() model {
	g := G.NewGraph()
	x, w := input(g, "x", 5, 7), input(g, "w", 7)
	return squares(x, w, ok(G.Mul(x, w)))
}

// gOuter has no gradients: Gorgonia's own for it has a wrong shape on any machine.
func gOuter() model {
	g := G.NewGraph()
	x, w := input(g, "x", 5), input(g, "w", 7)
	return model{g: g, leaves: G.Nodes{x, w}, out: G.Nodes{ok(G.OuterProd(x, w))}}
}

func gBatched() model {
	g := G.NewGraph()
	x, w := input(g, "x", 4, 5, 7), input(g, "w", 4, 7, 3)
	return squares(x, w, ok(G.BatchedMatMul(x, w)))
}

// bare makes Gorgonia's machine as it is in a program that registers no kernels.
func bare(g *G.ExprGraph, opts ...G.VMOpt) (G.VM, error) {
	return inStages(func() (G.VM, error) {
		vm := G.NewTapeMachine(g, opts...)
		for i := range vm.Engines() {
			clear(vm.Engines()[i].Functions())
		}
		return vm, nil
	})
}

// repeated makes a machine whose first run is so many runs.
func repeated(n int, open newMachine) newMachine {
	return func(g *G.ExprGraph, opts ...G.VMOpt) (G.VM, error) {
		vm, err := open(g, opts...)
		return &repeats{vm, n}, err
	}
}

type repeats struct {
	G.VM
	more int
}

func (r *repeats) RunAll() error {
	for ; r.more > 1; r.more-- {
		if err := r.VM.RunAll(); err != nil {
			return err
		}
		r.VM.Reset()
	}
	return r.VM.RunAll()
}

// crowded runs f on one processor, which f has to share: then it comes back from
// each long call of CUDA's on another thread, unless it is bound to its own.
func crowded(f func() error) func() error {
	return func() error {
		runtime.GOMAXPROCS(1)
		go func() {
			for x := 1.0; ; {
				x = math.Sin(x)
			}
		}()
		return f()
	}
}

// elsewhere makes machines on another thread than the caller's, which is bound
// to its own; that thread does nothing else.
func elsewhere(open newMachine) newMachine {
	return func(g *G.ExprGraph, opts ...G.VMOpt) (vm G.VM, err error) {
		done := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			vm, err = open(g, opts...)
			close(done)
			select {}
		}()
		<-done
		return vm, err
	}
}

// lockedGorgonias binds the goroutine that makes a machine to its thread.
func lockedGorgonias(g *G.ExprGraph, opts ...G.VMOpt) (G.VM, error) {
	runtime.LockOSThread()
	return gorgonias(g, opts...)
}

// together has several machines at work at a time, each in a goroutine.
func together(open newMachine) func() error {
	return func() error {
		const n = 4
		host := sthenoLoss()
		vm := ok(cudaops.NewVM(host.g, cudaops.OnHost()))
		must(vm.RunAll())
		want := numbers(host.out[0].Value())[0]
		must(vm.Close())
		results := make(chan error, n)
		for i := range n {
			m := sthenoLoss()
			go func() {
				results <- func() error {
					vm, err := open(m.g)
					if err != nil {
						return err
					}
					for range 5 {
						if err := vm.RunAll(); err != nil {
							return errors.Join(err, vm.Close())
						}
						if got := numbers(m.out[0].Value())[0]; !(math.Abs(got-want) <= 1e-12*(1+math.Abs(want))) {
							return fmt.Errorf("machine %d: got %v, want %v", i, got, want)
						}
						vm.Reset()
					}
					return vm.Close()
				}()
			}()
		}
		var errs []error
		for range n {
			errs = append(errs, <-results)
		}
		return errors.Join(errs...)
	}
}

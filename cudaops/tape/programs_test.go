//go:build cuda

package tape_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/tape"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file has the machines of the programs of breakage_test.go, and ways to use them.

type newMachine func(g *G.ExprGraph, opts ...G.VMOpt) (G.VM, error)

func gorgonias(g *G.ExprGraph, opts ...G.VMOpt) (G.VM, error) {
	return inStages(func() (G.VM, error) { return G.NewTapeMachine(g, opts...), nil })
}

func stheno(g *G.ExprGraph, opts ...G.VMOpt) (G.VM, error) {
	return inStages(func() (G.VM, error) { return tape.NewMachine(g, opts...) })
}

// staged is a machine that prints what it begins and the errors of its runs, so
// that the output of a program that hangs ends where it hangs.
type staged struct{ G.VM }

func inStages(make func() (G.VM, error)) (G.VM, error) {
	fmt.Println("stage: New")
	vm, err := make()
	return staged{vm}, err
}

func (s staged) RunAll() error {
	fmt.Println("stage: RunAll")
	err := s.VM.RunAll()
	if err != nil {
		fmt.Println("found:", err)
	}
	return err
}

func (s staged) Close() error {
	fmt.Println("stage: Close")
	return s.VM.Close()
}

func loop(n int, f func() error) func() error {
	return func() error {
		for i := range n {
			if err := f(); err != nil {
				return fmt.Errorf("turn %d: %w", i+1, err)
			}
		}
		return nil
	}
}

func on(build func() model, make newMachine, opts ...G.VMOpt) func() error {
	return func() error { return compare(build, make, opts...) }
}

// held runs f with the goroutine bound to its thread.
func held(f func() error) func() error {
	return func() error {
		runtime.LockOSThread()
		return f()
	}
}

// tooLarge is a graph that no device has the memory for.
func tooLarge(make newMachine) func() error {
	return func() error {
		g := G.NewGraph()
		x := G.NewTensor(g, tensor.Float64, 1, G.WithName("x"), G.WithShape(1<<40))
		ok(ops.Add(x, x))
		if _, err := make(g); err == nil || !strings.Contains(err.Error(), "bytes") {
			return fmt.Errorf("2^40 elements give %v", err)
		}
		return nil
	}
}

// watches has the machine watch for the results of the op on negative numbers.
func watches(make newMachine, what string, f func(*G.Node) (*G.Node, error), option G.VMOpt) func() error {
	return func() error {
		g := G.NewGraph()
		ok(f(ok(G.Neg(ok(G.Abs(input(g, "x", 5, 7)))))))
		vm := ok(make(g, option))
		if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), what) {
			return fmt.Errorf("got error %v, want one about %s", err, what)
		}
		return vm.Close()
	}
}

// infinity is x + Inf by an op of Stheno's.
func infinity(x *G.Node) (*G.Node, error) {
	inf := tensor.New(tensor.WithShape(x.Shape()...), tensor.Of(tensor.Float64))
	panicOn(inf.Memset(math.Inf(1)))
	return ops.Add(x, G.NewTensor(x.Graph(), tensor.Float64, x.Dims(), G.WithName("inf"), G.WithShape(x.Shape()...), G.WithValue(inf)))
}

// several has several machines open at a time, used in turn.
func several(make newMachine) func() error {
	return func() error {
		const n = 4
		var ms []model
		var vms []G.VM
		for range n {
			m := sthenoOnly()
			ms, vms = append(ms, m), append(vms, ok(make(m.g)))
		}
		for range 3 {
			for i := range n {
				panicOn(vms[i].RunAll())
				if got, want := numbers(ms[i].out[0].Value()), numbers(ms[0].out[0].Value()); got[0] != want[0] {
					return fmt.Errorf("machine %d gives %v, machine 0 %v", i, got, want)
				}
			}
			for i := range n {
				vms[i].Reset()
			}
		}
		var errs []error
		for i := range n {
			errs = append(errs, vms[i].Close())
		}
		return errors.Join(errs...)
	}
}

// leak runs a graph of the op again and again and watches the process grow, by
// no more than a number of bytes for each launch. Memory that the process has not given
// back yet amounts to tens of bytes for each.
func leak(op func(a, b *G.Node) (*G.Node, error), make newMachine, most int) func() error {
	return func() error {
		g := G.NewGraph()
		const launches = 16 // which the queue has room for
		y := ok(op(input(g, "x", 10), input(g, "y", 10)))
		for range launches - 1 {
			y = ok(op(y, input(g, "z", 10)))
		}
		vm := ok(make(g))
		runs := func(n int) {
			for range n {
				panicOn(vm.RunAll())
				vm.Reset()
			}
		}
		runs(100)
		before := resident()
		const more = 2000
		runs(more)
		grown := max(resident()-before, 0) / (launches * more)
		if grown > most {
			return fmt.Errorf("grew %d bytes for each of %d launches, want %d at most", grown, launches*more, most)
		}
		fmt.Printf("grew %d bytes for each of %d launches\n", grown, launches*more)
		return vm.Close()
	}
}

func resident() int {
	debug.FreeOSMemory()
	text := ok(os.ReadFile("/proc/self/statm"))
	return ok(strconv.Atoi(strings.Fields(string(text))[1])) * os.Getpagesize()
}

func outlives() error {
	m := mixed()
	vm := ok(stheno(m.g))
	panicOn(vm.RunAll())
	before := numbers(m.out[len(m.out)-1].Value())
	panicOn(vm.Close())
	if after := numbers(m.out[len(m.out)-1].Value()); after[0] != before[0] {
		return fmt.Errorf("%v before Close, %v after", before, after)
	}
	return nil
}

func lisp(opts ...G.VMOpt) newMachine {
	return func(g *G.ExprGraph, _ ...G.VMOpt) (G.VM, error) {
		return inStages(func() (G.VM, error) { return G.NewLispMachine(g, opts...), nil })
	}
}

// lispGradients compares DoDiff with SymDiff on the host.
func lispGradients(build func() model, make newMachine) func() error {
	return func() error {
		a, b := build(), build()
		ok(G.Grad(a.out[len(a.out)-1], a.leaves...))
		host := ok(cudaops.NewVM(a.g, cudaops.OnHost()))
		panicOn(host.RunAll())
		runtime.LockOSThread() // for Gorgonia's
		vm := ok(make(b.g))
		panicOn(vm.RunAll())
		for i := range a.leaves {
			got, want := numbers(ok(b.leaves[i].Grad())), numbers(ok(a.leaves[i].Grad()))
			for k := range want {
				if !(math.Abs(got[k]-want[k]) <= 1e-12*(1+math.Abs(want[k]))) {
					return fmt.Errorf("gradient %d, element %d: got %v, want %v", i, k, got[k], want[k])
				}
			}
		}
		return vm.Close()
	}
}

func bound(build func() model, make newMachine) func() error {
	return func() error {
		m := build()
		return compare(func() model { m = build(); return m }, func(g *G.ExprGraph, opts ...G.VMOpt) (G.VM, error) {
			return make(g, G.BindDualValues(m.leaves...))
		})
	}
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

// repeated makes a machine whose first run is n runs.
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
		panicOn(vm.RunAll())
		want := numbers(host.out[0].Value())[0]
		panicOn(vm.Close())
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

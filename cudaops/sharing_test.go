package cudaops

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A VM that would write what another one reads or writes while that runs is refused.
func TestSharedNodes(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		var meanwhile func() error
		var err error
		g, _, second, _ := applied(t, doing(func(in ...G.Value) (G.Value, error) {
			if meanwhile != nil {
				err = meanwhile()
			}
			return in[0], nil
		}))
		x := g.ByName("x")[0]
		other := testutil.Get[*G.Node](t)(G.Square(x))
		one, all, part := machine(t, g, on, Outputs(second)), machine(t, g, on), machine(t, g, on, Outputs(second), Keep(other))
		apart := machine(t, testutil.Get[*G.Node](t)(G.Exp(G.NewVector(G.NewGraph(), tensor.Float64, G.WithName("x"), G.WithShape(2), G.WithValue(vector(1, 2))))).Graph(), on)
		for _, c := range []struct {
			name string
			run  func() error
			want string
		}{
			{"the whole graph", all.RunAll, "belongs to another VM of the same graph, which runs now"},
			{"a part that computes the same", part.RunAll, "node "},
			{"another graph", apart.RunAll, ""},
			{"a VM that is closed", func() error { return testutil.Get[*VM](t)(NewVM(g, on)).Close() }, ""},
		} {
			meanwhile, err = c.run, errors.New("it was not run")
			testutil.Do(t, one.RunAll())
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: got the error %v, want %q", c.name, err, c.want)
			}
			meanwhile = nil
			testutil.Do(t, all.RunAll()) // once no other one runs
		}
	})
}

// VMs that read the same inputs and write nothing that the other one has run at once.
func TestSharedInputs(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		var vm *VM
		err := errors.New("it was not run")
		g := G.NewGraph()
		x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(2), G.WithValue(vector(1, 2)))
		first := testutil.Get[*G.Node](t)(G.ApplyOp(doing(func(in ...G.Value) (G.Value, error) { err = vm.RunAll(); return in[0], nil }), x))
		second := testutil.Get[*G.Node](t)(G.Square(x))
		vm = machine(t, g, on, Outputs(second))
		testutil.Do(t, machine(t, g, on, Outputs(first)).RunAll())
		testutil.Do(t, err)
		equal(t, "the result of the run within", second.Value(), vector(1, 4), 0)
	})
}

// Learnables that a VM would bind while another one reads them are bound later.
func TestSharedLearnables(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		var meanwhile func()
		p := newPerceptron(t, tensor.Float64, 3)
		testutil.Get[*G.Node](t)(G.ApplyOp(doing(func(in ...G.Value) (G.Value, error) {
			if meanwhile != nil {
				meanwhile()
			}
			return in[0], nil
		}), p.learnables[0]))
		p.feed(t)
		evaluate := machine(t, p.g, on, ForwardOnly())
		train := machine(t, p.g, on, Train(G.NewAdamSolver(), p.learnables...))
		testutil.Do(t, train.RunAll())
		var errs []error
		meanwhile = func() { errs = append(errs, train.Pull(), train.Push(), train.Close(), train.RunAll()) }
		testutil.Do(t, evaluate.RunAll())
		if len(errs) != 4 {
			t.Fatalf("%d calls, want 4", len(errs))
		}
		for _, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "runs now") {
				t.Errorf("got the error %v", err)
			}
		}
		meanwhile = nil
		want := testutil.Get[*Snapshot](t)(train.Snapshot()).Learnables[0].Value
		testutil.Do(t, train.Close()) // nothing is lost
		equal(t, "the weights that Close pulled", p.learnables[0].Value(), want, 0)
	})
}

// Runs of two VMs in two goroutines are right or refused; the race detector sees the rest.
func TestSharedByGoroutines(t *testing.T) {
	m := newMLP(t, tensor.Float64, 4, 5, 6, 3)
	var wg sync.WaitGroup
	for range 2 {
		vm := machine(t, m.g, OnHost())
		wg.Go(func() {
			for done := 0; done < 20; {
				err := vm.RunAll()
				if err == nil {
					done++
				} else if !strings.Contains(err.Error(), "runs now") {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

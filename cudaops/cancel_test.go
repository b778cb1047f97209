package cudaops

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A run whose context is done ends before its next step, and leaves all as it was.
func TestCancel(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		cause := errors.New("enough")
		var cancel context.CancelCauseFunc
		late := 0
		stop := doing(func(in ...G.Value) (G.Value, error) {
			if cancel != nil {
				cancel(cause)
			}
			return in[0], nil
		})
		g, first, second, read := applied(t, stop)
		after := testutil.Get[*G.Node](t)(G.ApplyOp(doing(func(in ...G.Value) (G.Value, error) { late++; return in[0], nil }),
			testutil.Get[*G.Node](t)(G.Square(second))))
		vm := machine(t, g, on)
		ctx, c := context.WithCancelCause(context.Background())
		cancel = c
		err := vm.RunContext(ctx)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || !strings.Contains(err.Error(), "cudaops: node ") {
			t.Errorf("got the error %v, want one of the context with its cause and the next node", err)
		}
		if late != 0 || first.Value() != nil || after.Value() != nil || *read != nil {
			t.Errorf("the run went on: %d calls of a later op", late)
		}
		if err := vm.RunContext(ctx); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "node") {
			t.Errorf("a context that is done gives %v", err)
		}
		if r := vm.Report(); r.Runs != 0 {
			t.Errorf("the report says %d runs", r.Runs)
		}
		cancel = nil
		testutil.Do(t, vm.RunContext(context.Background()))
		if late != 1 || after.Value() == nil {
			t.Errorf("%d calls of the later op, want 1", late)
		}
		var none context.Context
		if err := vm.RunContext((*ownContext)(nil)); err == nil || !strings.Contains(err.Error(), "nil context") {
			t.Errorf("a nil pointer as the context gives %v", err)
		}
		if err := vm.RunContext(none); err == nil || !strings.Contains(err.Error(), "nil context") {
			t.Errorf("a nil context gives %v", err)
		}
	})
}

// countdown is a context that is done from some question on.
type countdown struct {
	context.Context
	left *int
}

func (c countdown) Err() error {
	if *c.left--; *c.left < 0 {
		return context.Canceled
	}
	return nil
}

// Wherever a training run is cancelled, it changes all of the learnables and moments or none.
func TestCancelTraining(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		build := func() (*perceptron, *VM) {
			p := newPerceptron(t, tensor.Float64, 3)
			p.feed(t)
			return p, machine(t, p.g, on, Train(G.NewAdamSolver(), p.learnables...))
		}
		p, vm := build()
		q, want := build()
		for range 2 { // the second step needs the moments of the first
			testutil.Do(t, want.RunAll())
			testutil.Do(t, want.Pull())
			cancelled := 0
			for after := 0; ; after++ {
				left := after
				before := cloned(t, p.learnables)
				err := vm.RunContext(countdown{context.Background(), &left})
				testutil.Do(t, vm.Pull())
				if err == nil {
					break
				}
				cancelled++
				if !errors.Is(err, context.Canceled) || cancelled > 1000 {
					t.Fatalf("got the error %v", err)
				}
				for i, w := range p.learnables {
					equal(t, "learnable after a run that was cancelled", w.Value(), before[i], 0)
				}
			}
			if least := map[bool]int{true: 3, false: 1}[vm.Device() == "host backend"]; cancelled < least { // a GPU makes one launch of it
				t.Errorf("cancelled at %d places, want %d or more", cancelled, least)
			}
			for i, w := range p.learnables {
				equal(t, "learnable after a step", w.Value(), q.learnables[i].Value(), 0)
			}
		}
	})
}

// cloned returns copies of the nodes' values.
func cloned(t *testing.T, nodes []*G.Node) (list []G.Value) {
	for _, n := range nodes {
		list = append(list, testutil.Get[G.Value](t)(G.CloneValue(n.Value())))
	}
	return list
}

// ownContext is a type of contexts.
type ownContext struct{ context.Context }

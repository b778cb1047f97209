package exec

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// started is a host backend that records how a program starts.
type started struct {
	*HostBackend
	calls    []string // in their order, repetitions left out
	launches int
	uploads  []int // the number of values of each uploadAll
}

func (s *started) called(name string) {
	if len(s.calls) == 0 || s.calls[len(s.calls)-1] != name {
		s.calls = append(s.calls, name)
	}
}

func (s *started) Preload([]*kernels.Plan) func() error {
	s.called("Preload")
	return func() error { s.called("done"); return nil }
}

func (s *started) Open() error {
	s.called("Open")
	return nil
}

func (s *started) Alloc(bytes int64) error {
	s.called("Alloc")
	return s.HostBackend.Alloc(bytes)
}

func (s *started) Bind(p *kernels.Plan, in, out []Span, scratch Span) (func() error, error) {
	s.called("Bind")
	run, err := s.HostBackend.Bind(p, in, out, scratch)
	return func() error { s.launches++; return run() }, err
}

func (s *started) uploadAll(list []upload) error {
	s.uploads = append(s.uploads, len(list))
	for _, x := range list {
		if err := s.Upload(x.to, x.from); err != nil {
			return err
		}
	}
	return nil
}

// A program starts to load kernels before it waits for its device. All parameters are copied at once, and one launch for each copy in 16 bits renews it, however many
// parameters share the state: the copies are those that the host rounds.
func TestStart(t *testing.T) {
	r := testutil.Random(t)
	for _, by := range []kernels.Precision{kernels.FullPrecision, kernels.BF16, kernels.F16} {
		sizes := []int{64, 24}
		for range 1 + r.IntN(5) {
			sizes = append(sizes, 8*(1+r.IntN(8)))
		}
		spec := graphspec.MLP(sizes[0], sizes[1:]...)
		g := G.NewGraph()
		var nodes G.Nodes
		for _, i := range spec.Inputs {
			nodes = append(nodes, G.NewTensor(g, tensor.Float32, len(i.Shape), G.WithShape(i.Shape...), G.WithName(i.Name)))
		}
		spec.Build(nodes)
		solver, _, err := internal.ReadSolver(G.NewAdamSolver())
		testutil.Do(t, err)
		graph := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Precision: by, Train: &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{{Solver: solver, Learnables: nodes[2:]}}}}))
		testutil.Do(t, passes.Run(graph.Program, passes.Target{Device: kernels.HostDevice(), Mixed: by}, nil))
		b := &started{HostBackend: new(HostBackend)}
		e := testutil.Get[*Executable](t)(New(graph.Program, b, false))
		if want := []string{"Preload", "Open", "Alloc", "Bind", "done"}; !slices.Equal(b.calls, want) {
			t.Errorf("%v: a program starts by the calls %v, want %v", by, b.calls, want)
		}
		var list []StateValue
		states, copies := map[*program.Value]bool{}, 0
		for _, l := range graph.Trained.Learned {
			x := make([]float32, l.Value.Elements())
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			list = append(list, StateValue{l.Value, kernels.Bytes(x)})
			if base := l.Value.Base; !states[base] {
				states[base] = true
				copies += len(e.copiesOf(base))
			}
		}
		testutil.Do(t, e.SetAll(list))
		if !slices.Equal(b.uploads, []int{len(list)}) || b.launches != copies || (copies > 0) != (by != kernels.FullPrecision) {
			t.Errorf("%v: %d parameters were copied by %v, with %d launches for %d copies in 16 bits", by, len(list), b.uploads, b.launches, copies)
		}
		for _, x := range list {
			for _, half := range e.copiesOf(x.Of.Base) {
				got := make([]byte, len(x.Bytes)/2)
				testutil.Do(t, e.download(in(x.Of, half), got))
				if !bytes.Equal(got, Rounded(x.Bytes, half.Dtype)) {
					t.Errorf("%v: the copy of %v is not its value rounded", by, x.Of)
				}
			}
		}
	}
}

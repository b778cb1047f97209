package nn

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/cudaops"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/values"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Scope is a path in the model of a graph, such as h.0.attn, with all that the layers there share: the graph's parameters, states and first error. A Scope
// is not safe for concurrent use, as Gorgonia's graphs are not.
type Scope struct {
	*model
	path string
	tied bool
}

// model is what all scopes of a graph share.
type model struct {
	graph      *G.ExprGraph
	store      *cudaops.Store
	stored     map[string]cudaops.ParameterType // in the Store when New was called
	dtype      tensor.Dtype
	seed       uint64
	evaluate   bool
	loaded     bool
	context    int // length of caches; 0 without a cache
	initial    func(name string, shape tensor.Shape) Init
	byName     map[string]*G.Node
	parameters G.Nodes
	buffers    G.Nodes
	caches     G.Nodes // of Cache, and of attention, which Reset leaves alone
	reset      G.Nodes
	next       map[*G.Node]*G.Node
	position   *position
	err        error
}

// Option is an option of [New].
type Option func(*model)

// In keeps the parameters in a Store, which may be empty. A parameter of another type or shape than the Store has is an error of its layer. A parameter that the
// Store does not have gets an initial value; under [Loaded], and under [Evaluation] if the Store has other parameters, it is an error of its layer.
func In(s *cudaops.Store) Option {
	return func(m *model) {
		if m.store = s; s == nil {
			m.err = errors.New("nn: In got a nil Store")
		}
	}
}

// Seed sets the seed of initial values, 0 without it.
func Seed(seed uint64) Option { return func(m *model) { m.seed = seed } }

// Dtype sets the element type of parameters, tensor.Float32 without it or tensor.Float64.
func Dtype(dt tensor.Dtype) Option { return func(m *model) { m.dtype = dt } }

// Evaluation builds the layers as they evaluate: Dropout is off, and BatchNorm uses its running statistics, so that a batch may have one row. Other
// ops with a training mode evaluate in a VM with [Scope.Options]. Without Evaluation layers train, except in a VM with cudaops.EvalMode.
func Evaluation() Option { return func(m *model) { m.evaluate = true } }

// Loaded wants the parameters of the model and those of the Store of [In] to have the same names, as load_state_dict of PyTorch does with strict=True. A parameter
// that the Store lacks is an error of its layer. One of the Store that no layer has is an error of [Scope.NewVM], and of [Scope.Options].
func Loaded() Option { return func(m *model) { m.loaded = true } }

// Cached gives causal attention caches of keys and values for a number of positions, and counts positions from run to run. The tokens of a run follow the tokens of
// earlier runs, also of other VMs of the Store with the same batch size and number of positions: see [Scope.Position] and [Scope.Reset].
func Cached(positions int) Option {
	return func(m *model) {
		if m.context = positions; positions < 1 || positions > math.MaxInt32 {
			m.err = fmt.Errorf("nn: New got Cached(%d), want 1 to %d", positions, math.MaxInt32)
		}
	}
}

// Initial sets the initial values of parameters by a function of the name and the shape, which returns nil for PyTorch's.
func Initial(f func(name string, shape tensor.Shape) Init) Option {
	return func(m *model) { m.initial = f }
}

// New returns the scope of a graph's whole model. Its path is empty.
func New(g *G.ExprGraph, opts ...Option) *Scope {
	m := &model{graph: g, dtype: tensor.Float32, byName: map[string]*G.Node{}, next: map[*G.Node]*G.Node{}, stored: map[string]cudaops.ParameterType{}}
	s := &Scope{model: m}
	for _, o := range opts {
		if o == nil {
			return s.fail("New got a nil option")
		}
		o(m)
	}
	switch {
	case g == nil:
		return s.fail("New got a nil graph")
	case m.dtype != tensor.Float32 && m.dtype != tensor.Float64:
		return s.fail("New got the element type %v, want float32 or float64", m.dtype)
	case m.loaded && m.store == nil:
		return s.fail("New got Loaded without a Store, want In")
	case m.store == nil:
		return s
	}
	types, err := m.store.Types()
	if err != nil {
		return s.fail("In: %w", err)
	}
	for _, t := range types {
		m.stored[t.Name] = t
	}
	return s
}

// errNoScope is the error of scopes that New did not make.
var errNoScope = errors.New("nn: got a Scope that New did not make")

// made reports whether New made the scope.
func (s *Scope) made() bool { return s != nil && s.model != nil }

// ok reports whether the scope can build: New made it, and no error is kept.
func (s *Scope) ok() bool { return s.made() && s.err == nil }

// fail keeps an error, if it is the first one.
func (s *Scope) fail(format string, args ...any) *Scope {
	if s.ok() {
		err := fmt.Errorf(format, args...)
		if s.path == "" {
			s.err = fmt.Errorf("nn: %w", err)
		} else {
			s.err = fmt.Errorf("nn: %s: %w", s.path, err)
		}
	}
	return s
}

// Keep returns a node and keeps an error, with the path, if it is the first one:
//
//	y := s.Keep(ops.Map("a + b", x, y))
//
// Functions of ops accept the nil nodes that follow an error; Gorgonia's own do not. A node without a name gets one for reports and errors: the path and its op.
func (s *Scope) Keep(n *G.Node, err error) *G.Node {
	if err != nil {
		s.fail("%w", err)
	}
	if n != nil {
		of, _ := internal.ElementType(n)
		if dt, known := values.Dtype(of); known {
			if _, err := values.Size(dt, n.Shape()); err != nil {
				s.fail("%s: %w", internal.Name(n), err)
			}
		}
	}
	if !s.ok() {
		return nil
	}
	if n != nil && s.path != "" && !internal.IsNamed(n) {
		G.WithName(fmt.Sprintf("%s: %v", s.path, n.Op()))(n)
	}
	return n
}

// try is Keep of a function of Gorgonia, which is not called after an error.
func (s *Scope) try(what string, f func() (*G.Node, error)) (n *G.Node) {
	if !s.ok() {
		return nil
	}
	return s.Keep(n, guard.Recover(what, func() (err error) { n, err = f(); return err }))
}

// Err returns the first error.
func (s *Scope) Err() error {
	if !s.made() {
		return errNoScope
	}
	return s.err
}

// At returns the scope at a path below this one. Parts are joined by dots: At("h", 0, "attn") is h.0.attn.
func (s *Scope) At(parts ...any) *Scope {
	if !s.made() {
		return s
	}
	names := make([]string, 0, len(parts)+1)
	if s.path != "" {
		names = append(names, s.path)
	}
	for _, p := range parts {
		names = append(names, fmt.Sprint(p))
	}
	c := &Scope{s.model, strings.Join(names, "."), s.tied}
	if slices.Contains(names, "") {
		c.fail("At got an empty name")
	}
	return c
}

// Tied returns the scope for layers that use the parameters made at its path before, instead of new ones:
//
//	x := nn.Embedding(s.At("wte"), tokens, vocabulary, width)
//	...
//	logits := nn.Linear(s.At("wte").Tied(), x, vocabulary, nn.NoBias())
//
// A parameter that is not there yet, or of another shape, is an error.
func (s *Scope) Tied() *Scope {
	if !s.made() {
		return s
	}
	return &Scope{s.model, s.path, true}
}

// Graph returns the graph.
func (s *Scope) Graph() *G.ExprGraph {
	if !s.made() {
		return nil
	}
	return s.graph
}

// Parameters returns the parameters made so far, in their order: what [gorgonia.Grad] and cudaops.Train take. Buffers, such as running means, are not among
// them.
func (s *Scope) Parameters() G.Nodes {
	if !s.made() {
		return nil
	}
	return slices.Clone(s.parameters)
}

// Grad adds the gradients of a loss with respect to all parameters to the graph. It returns the scope's first error, or that of [gorgonia.Grad]. A second loss is an error: it wants a
// graph of its own, or is added to the first.
func (s *Scope) Grad(loss *G.Node) error {
	if err := s.Err(); err != nil {
		return err
	}
	if loss == nil {
		s.fail("Grad got a nil loss")
		return s.err
	}
	if of, ok := internal.ElementType(loss); ok && of != tensor.Float32 && of != tensor.Float64 { // Gorgonia returns neither an error nor gradients
		s.fail("Grad got a loss of %v, want float32 or float64", of)
		return s.err
	}
	if i := slices.IndexFunc(s.parameters, func(n *G.Node) bool { return n.Deriv() != nil }); i >= 0 { // gorgonia.Grad leaves out nodes that have a derivative
		s.fail("Grad: %s has a gradient already, want one Grad of a sum of losses, or a graph for each loss", s.parameters[i].Name())
		return s.err
	}
	err := guard.Recover("gorgonia.Grad", func() error { _, err := G.Grad(loss, s.parameters...); return err })
	if err != nil {
		s.fail("Grad: %w", err)
	}
	return s.err
}

// Options returns the options of cudaops.NewVM that the model needs: its states, the Store of [In], and under [Evaluation] cudaops.Inference.
func (s *Scope) Options() (opts []cudaops.Option) {
	if !s.ok() {
		return nil
	}
	if rest := s.unused(); s.loaded && len(rest) > 0 {
		s.fail("Loaded got a Store with %s, which no layer has, want the parameters of the model alone (checkpoint.Rename maps or omits names)", some(rest))
		return nil
	}
	of := slices.Concat(s.parameters, s.buffers)
	for _, n := range slices.Concat(s.buffers, s.caches) {
		switch next := s.next[n]; {
		case next == nil:
		case slices.Contains(s.caches, n):
			opts = append(opts, cudaops.Transient(n, next))
		default:
			opts = append(opts, cudaops.State(n, next))
		}
	}
	if s.store != nil && len(of)+len(s.caches) > 0 {
		opts = append(opts, cudaops.In(s.store, of...))
	}
	if s.evaluate {
		opts = append(opts, cudaops.Inference())
	}
	return opts
}

// NewVM returns a VM of the graph with [Scope.Options] and further options, or the scope's first error.
func (s *Scope) NewVM(opts ...cudaops.Option) (*cudaops.VM, error) {
	own := s.Options()
	if err := s.Err(); err != nil {
		return nil, err
	}
	return cudaops.NewVM(s.graph, append(own, opts...)...)
}

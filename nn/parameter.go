package nn

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/internal/hostmem"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Init draws an element of a parameter's initial value. Those of a large parameter are drawn by several goroutines, so an Init follows from its random numbers alone, unless it draws some elements without any:
// such a one is called in order by one goroutine.
type Init func(r *rand.Rand) float64

// Constant is one value for all elements.
func Constant(value float64) Init { return func(*rand.Rand) float64 { return value } }

// Uniform draws from -bound to bound.
func Uniform(bound float64) Init {
	return func(r *rand.Rand) float64 { return bound * (2*r.Float64() - 1) }
}

// Normal draws from the normal distribution with mean 0 and a standard deviation.
func Normal(deviation float64) Init {
	return func(r *rand.Rand) float64 { return deviation * r.NormFloat64() }
}

// NormalWeights are the initial values of many transformers, for [Initial]: Normal for parameters of two axes or more, 0 for biases, and PyTorch's for all others.
func NormalWeights(deviation float64) func(name string, shape tensor.Shape) Init {
	return func(name string, shape tensor.Shape) Init {
		switch {
		case len(shape) > 1:
			return Normal(deviation)
		case strings.HasSuffix(name, "bias"):
			return Constant(0)
		}
		return nil
	}
}

// fanIn is what PyTorch draws weights and biases of linear layers and convolutions from, kaiming_uniform(a=√5): Uniform(1/√n) for n inputs of an output.
func fanIn(n int) Init { return Uniform(1 / math.Sqrt(float64(n))) }

// Parameter returns a parameter that is learnt, called name below the path, with the scope's element type. Its initial value is drawn element by element
// from init, with random numbers that follow from the seed and the path; where the Store of [In] has the parameter, none is drawn.
func (s *Scope) Parameter(name string, init Init, shape ...int) *G.Node {
	n, made := s.variable(name, init, shape)
	if made {
		s.parameters = append(s.parameters, n)
	}
	return n
}

// Buffer returns a parameter that is not learnt, such as a running mean: gradients leave it out, files have it. [Scope.Next] makes it a state.
func (s *Scope) Buffer(name string, init Init, shape ...int) *G.Node {
	n, made := s.variable(name, init, shape)
	if made {
		s.buffers = append(s.buffers, n)
	}
	return n
}

// variable returns a parameter or buffer, and whether it is new.
func (s *Scope) variable(name string, init Init, shape tensor.Shape) (n *G.Node, made bool) {
	if !s.ok() {
		return nil, false
	}
	p := s.At(name)
	full := p.path
	if s.tied {
		if n = s.byName[full]; n == nil || !slices.Contains(slices.Concat(s.parameters, s.buffers), n) {
			s.fail("parameter %s is tied, and there is none of that name yet", full)
		} else if !slices.Equal(n.Shape(), shape) {
			s.fail("parameter %s is tied: got shape %v, want %v as it was made", full, shape, n.Shape())
		}
		return s.Keep(n, nil), false
	}
	if t, ok := s.stored[full]; ok && s.ok() {
		if t.Dtype != s.dtype || !slices.Equal(t.Shape, shape) {
			s.fail("parameter %s: got %v of shape %v, want %v of shape %v as in the Store", full, s.dtype, shape, t.Dtype, t.Shape)
			return nil, false
		}
		return s.input(full, s.dtype, shape), s.ok()
	}
	if s.loaded || s.evaluate && len(s.stored) > 0 {
		s.fail("parameter %s: got a Store without it, which has %s, want it there, loaded or trained (checkpoint.Rename maps names)", full, some(s.unused()))
		return nil, false
	}
	if init == nil {
		s.fail("parameter %s: got a nil Init", full)
	}
	if n = s.input(full, s.dtype, shape); n == nil {
		return nil, false
	}
	if s.initial != nil {
		if own := s.initial(full, shape.Clone()); own != nil {
			init = own
		}
	}
	if s.room(full, s.dtype, shape) {
		s.Keep(n, G.Let(n, s.draw(full, init, shape)))
	}
	return n, s.ok()
}

// room reports whether the host has memory for a value, and fails where it has not.
func (s *Scope) room(what string, of tensor.Dtype, shape tensor.Shape) bool {
	dt, _ := values.Dtype(of)
	bytes, err := values.Size(dt, shape)
	if err == nil {
		err = hostmem.Check(bytes)
	}
	if err != nil {
		s.fail("%s: %v", what, err)
	}
	return s.ok()
}

// unused returns the names of parameters of the Store that no layer has so far.
func (m *model) unused() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(m.stored)) {
		if m.byName[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// some returns the first of a list of names, and how many others there are.
func some(names []string) string {
	const most = 3
	if len(names) == 0 {
		return "no other"
	}
	list := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		list += fmt.Sprintf(" and %d others", more)
	}
	return list
}

// draw returns an initial value.
func (s *Scope) draw(name string, init Init, shape tensor.Shape) *tensor.Dense {
	h := fnv.New64a()
	h.Write([]byte(name))
	seed, n := pcgState{s.seed, h.Sum64()}, int(kernels.Count(shape))
	if s.dtype == tensor.Float32 {
		return drawn[float32](n, seed, init, shape)
	}
	return drawn[float64](n, seed, init, shape)
}

// drawn returns a tensor of n elements that are drawn, a scalar without a shape.
func drawn[T float32 | float64](n int, seed pcgState, init Init, shape tensor.Shape) *tensor.Dense {
	list := make([]T, n)
	if drawAll(list, seed, init); len(shape) == 0 {
		return tensor.New(tensor.FromScalar(list[0]))
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(list))
}

// Input returns an input of the graph, without a value. Its name must not be that of a parameter.
func (s *Scope) Input(name string, dt tensor.Dtype, shape ...int) *G.Node {
	if !s.ok() {
		return nil
	}
	full := s.At(name).path
	if _, ok := s.stored[full]; ok {
		s.fail("input %s has the name of a parameter in the Store", full)
	}
	return s.input(full, dt, shape)
}

// mostElements is the number of elements of an input at most: more than a device has memory for, and few enough to count.
const mostElements = 1 << 40

// input returns an input of the graph.
func (s *Scope) input(full string, dt tensor.Dtype, shape tensor.Shape) *G.Node {
	switch {
	case !s.ok():
		return nil
	case s.byName[full] != nil:
		s.fail("%s is there already: want another path, or Tied", full)
		return nil
	}
	elements := 1
	for _, n := range shape {
		if n < 1 || n > mostElements/elements {
			s.fail("%s: got shape %v, want extents above 0 and at most %d elements", full, shape, mostElements)
			return nil
		}
		elements *= n
	}
	var n *G.Node
	if opts := []G.NodeConsOpt{G.WithName(full)}; len(shape) == 0 {
		n = G.NewScalar(s.graph, dt, opts...)
	} else {
		n = G.NewTensor(s.graph, dt, len(shape), append(opts, G.WithShape(shape...))...)
	}
	s.byName[full] = n
	return n
}

// Cache returns an input that begins with zeros and changes from run to run, and is no part of the model, such as the last token of each sequence. Want a
// [Scope.Next]. With [In], VMs with a cache of that name and shape share it; other shapes are other caches.
func (s *Scope) Cache(name string, dt tensor.Dtype, shape ...int) *G.Node {
	n := s.cache(name, dt, shape...)
	if n != nil {
		s.reset = append(s.reset, n)
	}
	return n
}

// cache is Cache without Reset.
func (s *Scope) cache(name string, dt tensor.Dtype, shape ...int) *G.Node {
	if !s.ok() {
		return nil
	}
	n := s.input(fmt.Sprint(s.At(name).path, tensor.Shape(shape)), dt, shape)
	if n != nil {
		s.caches = append(s.caches, n)
	}
	return n
}

// Next sets the value that a Buffer or Cache has after a run.
func (s *Scope) Next(n, next *G.Node) {
	switch {
	case !s.ok():
	case n == nil || next == nil:
		s.fail("Next got a nil node")
	case !slices.Contains(s.buffers, n) && !slices.Contains(s.caches, n):
		s.fail("Next got %v, want a Buffer or a Cache of this graph", n)
	case s.next[n] != nil:
		s.fail("Next got %s twice", n.Name())
	default:
		s.next[n] = next
	}
}

// Reset sets the caches and the position to zeros, in the Store of [In] for all VMs that share them, so that the next run begins another sequence.
func (s *Scope) Reset() error {
	if err := s.Err(); err != nil {
		return err
	}
	for _, n := range s.reset {
		zero := reflect.Zero(n.Dtype().Type).Interface()
		if n.Dims() > 0 {
			zero = tensor.New(tensor.Of(n.Dtype()), tensor.WithShape(n.Shape()...))
		}
		if err := G.Let(n, zero); err != nil {
			return fmt.Errorf("nn: Reset: %s: %w", n.Name(), err)
		}
	}
	if s.store == nil {
		return nil
	}
	return s.store.Push(s.reset...)
}

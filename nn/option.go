package nn

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// LayerOption is an option of layers. A layer that does not have it reports an error.
type LayerOption struct {
	name  string
	value float64
	nodes *G.Nodes
	node  *G.Node
	fault string // what is wrong with the value, or ""
}

// NoBias leaves the bias out.
func NoBias() LayerOption { return LayerOption{name: "NoBias", value: 1} }

// Stride sets the step of windows along each axis: 1 for convolutions without it, the window's size for pooling.
func Stride(n int) LayerOption { return LayerOption{name: "Stride", value: float64(n)} }

// Padding puts n zeros around an image for a convolution or a mean, numbers below all others for a maximum. A transposed convolution leaves out n elements at each side. 0 without it.
func Padding(n int) LayerOption { return LayerOption{name: "Padding", value: float64(n)} }

// Dilation sets the distance of a window's elements in the image of a convolution, 1 without it.
func Dilation(n int) LayerOption { return LayerOption{name: "Dilation", value: float64(n)} }

// OutputPadding makes the result of a transposed convolution n elements longer at the end of each axis, fewer than the stride. 0 without it.
func OutputPadding(n int) LayerOption { return LayerOption{name: "OutputPadding", value: float64(n)} }

// Groups sets the number of groups of a convolution, 1 without it: n-ths of the input's channels make n-ths of the result's. As many as channels make a depthwise convolution.
func Groups(n int) LayerOption { return LayerOption{name: "Groups", value: float64(n)} }

// Epsilon sets the number that a normalization adds to a variance, 1e-5 without it.
func Epsilon(epsilon float64) LayerOption { return LayerOption{name: "Epsilon", value: epsilon} }

// Momentum sets the share of a batch in the next running mean and variance of a BatchNorm, 0.1 without it.
func Momentum(share float64) LayerOption { return LayerOption{name: "Momentum", value: share} }

// OverRanks makes a BatchNorm normalize by the mean and the variance of the rows of all ranks, as the option of that name of ops.BatchNorm does.
func OverRanks() LayerOption { return LayerOption{name: "OverRanks", value: 1} }

// Causal lets each position attend to itself and to earlier positions only.
func Causal() LayerOption { return LayerOption{name: "Causal", value: 1} }

// Rotary turns queries and keys by angles of their positions: the pair of elements i and i + width/2 of a head by position · base^(-2i/width). The base is mostly
// 10000.
func Rotary(base float64) LayerOption {
	o := LayerOption{name: "Rotary", value: base}
	if !(base > 0) || math.IsInf(base, 0) {
		o.fault = fmt.Sprintf("Rotary(%v), want a finite base above 0", base)
	}
	return o
}

// KeyHeads sets the number of heads of keys and values, a divisor of the number of heads of queries, which it is without this option: consecutive heads of queries share one
// of keys and values (grouped-query attention).
func KeyHeads(n int) LayerOption { return LayerOption{name: "KeyHeads", value: float64(n)} }

// KeyCounts makes all positions of a sequence attend to as many of its first keys as counts, integers of shape (batch), has for it: the keys behind are padding. With
// Causal a position attends to the keys that both allow. A position without a key gets 0.
func KeyCounts(counts *G.Node) LayerOption {
	return LayerOption{name: "KeyCounts", value: 1, node: counts}
}

// Pattern appends the node of the weights of an attention, (batch, heads, time, keys), to a list.
func Pattern(to *G.Nodes) LayerOption { return LayerOption{name: "Pattern", value: 1, nodes: to} }

// Layers sets the number of layers of a recurrent network, 1 without it.
func Layers(n int) LayerOption { return LayerOption{name: "Layers", value: float64(n)} }

// LayerDropout is [Dropout] between the layers of a recurrent network, behind each but the last.
func LayerDropout(probability float64) LayerOption {
	o := LayerOption{name: "LayerDropout", value: probability}
	if !(probability >= 0 && probability <= 1) {
		o.fault = fmt.Sprintf("LayerDropout(%v), want 0 to 1", probability)
	}
	return o
}

// Bidirectional adds to each layer of a recurrent network one that reads from the end, whose parameters end in _reverse: the result is (batch, time, 2 hidden).
func Bidirectional() LayerOption { return LayerOption{name: "Bidirectional", value: 1} }

// Carry makes a recurrent network begin each run with the state that the run before left: see [Scope.Reset].
func Carry() LayerOption { return LayerOption{name: "Carry", value: 1} }

// settings are options of a layer by name.
type settings map[string]float64

// read returns the options of a layer: the given ones, and defaults for all others. It reports options that the layer does not have, and wrong values.
func (s *Scope) read(layer string, given []LayerOption, defaults settings) settings {
	for _, o := range given {
		if _, ok := defaults[o.name]; !ok {
			s.fail("%s got the option %s, want one of %s", layer, o.name, strings.Join(slices.Sorted(maps.Keys(defaults)), ", "))
			break
		}
		if o.fault != "" {
			s.fail("%s got %s", layer, o.fault)
		}
		defaults[o.name] = o.value
	}
	return defaults
}

// shape returns the shape of a layer's input, which must have at least min axes and, unless max is 0, at most max. ok is false after an error.
func (s *Scope) shape(layer string, x *G.Node, min, max int, want string) (shape tensor.Shape, ok bool) {
	if !s.ok() {
		return nil, false
	}
	if x == nil {
		s.fail("%s got a nil node, want %s", layer, want)
		return nil, false
	}
	if shape = x.Shape(); len(shape) < min || max > 0 && len(shape) > max {
		s.fail("%s got shape %v, want %s", layer, shape, want)
	}
	return shape, s.ok()
}

package nn

import (
	"fmt"

	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// LayerNorm is PyTorch's LayerNorm over the last axis: weight and, without [NoBias], bias of its extent. Options: NoBias, [Epsilon].
func LayerNorm(s *Scope, x *G.Node, opts ...LayerOption) *G.Node {
	o := s.read("LayerNorm", opts, settings{"NoBias": 0, "Epsilon": 1e-5})
	shape, ok := s.shape("LayerNorm", x, 1, 0, "(..., width)")
	if !ok {
		return nil
	}
	n := shape[len(shape)-1]
	return s.Keep(ops.LayerNorm(x, s.Parameter("weight", Constant(1), n), s.bias("bias", o, Constant(0), n), o["Epsilon"]))
}

// RMSNorm is PyTorch's RMSNorm over the last axis: weight of its extent. Option: [Epsilon], 1e-5 without it, where PyTorch has the type's machine epsilon.
func RMSNorm(s *Scope, x *G.Node, opts ...LayerOption) *G.Node {
	o := s.read("RMSNorm", opts, settings{"Epsilon": 1e-5})
	shape, ok := s.shape("RMSNorm", x, 1, 0, "(..., width)")
	if !ok {
		return nil
	}
	return s.Keep(ops.RMSNorm(x, s.Parameter("weight", Constant(1), shape[len(shape)-1]), o["Epsilon"]))
}

// GroupNorm is PyTorch's GroupNorm: the channels of x, (batch, channels, ...), in groups, each of which is normalized over its channels and all further axes. It has weight and bias
// of the channels. As many groups as channels make an InstanceNorm. Options: [NoBias], [Epsilon].
//
//	y = (x - mean) / √(variance + ε) weight + bias
func GroupNorm(s *Scope, x *G.Node, groups int, opts ...LayerOption) *G.Node {
	o := s.read("GroupNorm", opts, settings{"NoBias": 0, "Epsilon": 1e-5})
	shape, ok := s.shape("GroupNorm", x, 2, 0, "(batch, channels, ...)")
	switch {
	case !ok:
		return nil
	case groups < 1 || shape[1]%groups != 0:
		s.fail("GroupNorm got %d groups of %d channels, want a divisor", groups, shape[1])
	case !(o["Epsilon"] >= 0):
		s.fail("GroupNorm got epsilon %v, want a number of 0 or more", o["Epsilon"])
	}
	channels := make(tensor.Shape, len(shape)-1)
	for i := range channels {
		channels[i] = 1
	}
	channels[0] = shape[1]
	weight, bias := s.Parameter("weight", Constant(1), shape[1]), s.bias("bias", o, Constant(0), shape[1])
	if !s.ok() {
		return nil
	}
	rows := s.Keep(ops.Reshape(x, shape[0], groups, -1))
	mean, variance := s.Keep(ops.Mean(rows, 2)), s.Keep(ops.VarCorrection(rows, 0, 2))
	for _, n := range []**G.Node{&mean, &variance} {
		*n = s.Keep(ops.Reshape(*n, shape[0], groups, 1))
	}
	y := s.Keep(ops.Map(fmt.Sprintf("(a - b) / sqrt(c + %v)", o["Epsilon"]), rows, mean, variance))
	y = s.Keep(ops.Map("a*b", s.Keep(ops.Reshape(y, shape...)), s.Keep(ops.Reshape(weight, channels...))))
	if bias != nil {
		y = s.Keep(ops.Map("a + b", y, s.Keep(ops.Reshape(bias, channels...))))
	}
	return y
}

// BatchNorm is PyTorch's BatchNorm1d and BatchNorm2d: each channel of x, axis 1, is normalized over all other axes. It has weight and bias, and the buffers
// running_mean and running_var, which runs that train change; a file of PyTorch has num_batches_tracked too. Options: [Epsilon], [Momentum], [OverRanks].
func BatchNorm(s *Scope, x *G.Node, opts ...LayerOption) *G.Node {
	o := s.read("BatchNorm", opts, settings{"Epsilon": 1e-5, "Momentum": 0.1, "OverRanks": 0})
	shape, ok := s.shape("BatchNorm", x, 2, 0, "(batch, channels, ...)")
	if !ok {
		return nil
	}
	c := shape[1]
	weight, bias := s.Parameter("weight", Constant(1), c), s.Parameter("bias", Constant(0), c)
	mean, variance := s.Buffer("running_mean", Constant(0), c), s.Buffer("running_var", Constant(1), c)
	if !s.ok() {
		return nil
	}
	if s.evaluate {
		return s.normalize(x, mean, variance, weight, bias, o["Epsilon"])
	}
	var over []ops.BatchNormOption
	if o["OverRanks"] > 0 {
		over = append(over, ops.OverRanks())
	}
	y, nextMean, nextVariance, err := ops.BatchNorm(x, weight, bias, mean, variance, o["Momentum"], o["Epsilon"], over...)
	if y = s.Keep(y, err); y != nil {
		s.Next(mean, nextMean)
		s.Next(variance, nextVariance)
	}
	return y
}

// normalize is ops.BatchNorm in runs that evaluate, also of one element in a channel.
func (s *Scope) normalize(x, mean, variance, weight, bias *G.Node, epsilon float64) *G.Node {
	channels := make(tensor.Shape, x.Dims()-1)
	for i := range channels {
		channels[i] = 1
	}
	channels[0] = x.Shape()[1]
	inputs := []*G.Node{x, mean, variance, weight, bias}
	for i := range inputs[1:] {
		inputs[i+1] = s.Keep(ops.Reshape(inputs[i+1], channels...))
	}
	if !(epsilon >= 0) {
		s.fail("BatchNorm got epsilon %v, want a number of 0 or more", epsilon)
		return nil
	}
	return s.Keep(ops.Map(fmt.Sprintf("(a - b) * (1 / sqrt(c + %v)) * d + e", epsilon), inputs...))
}

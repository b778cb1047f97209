package main

import (
	"fmt"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
)

// resnet is ResNet-18 for images of 32 x 32, with torchvision's names: a first convolution of 3 x 3, four layers of two blocks, each layer with twice the
// channels and, after the first, half the side, and sums over the means of the last channels. x is (batch, channels, side, side).
func resnet(s *nn.Scope, x *G.Node, width, classes int) *G.Node {
	x = nn.ReLU(s, normed(s, "conv1", "bn1", x, width, 3, 1))
	for layer := range 4 {
		for i := range 2 {
			stride := 1
			if layer > 0 && i == 0 {
				stride = 2
			}
			x = block(s.At(fmt.Sprint("layer", layer+1), i), x, width<<layer, stride)
		}
	}
	return nn.Linear(s.At("fc"), nn.GlobalAvgPool(s, x), classes)
}

// block adds what two convolutions find in x to x itself, or, where the number of channels changes, to a convolution of 1 x 1.
func block(s *nn.Scope, x *G.Node, out, stride int) *G.Node {
	y := nn.ReLU(s, normed(s, "conv1", "bn1", x, out, 3, stride))
	y = normed(s, "conv2", "bn2", y, out, 3, 1)
	if stride > 1 {
		x = normed(s, "downsample.0", "downsample.1", x, out, 1, stride)
	}
	return nn.ReLU(s, s.Keep(ops.Add(y, x)))
}

// normed is a convolution without a bias and its batch normalization.
func normed(s *nn.Scope, conv, bn string, x *G.Node, out, size, stride int) *G.Node {
	return nn.BatchNorm(s.At(bn), nn.Conv2d(s.At(conv), x, out, size, nn.Stride(stride), nn.Padding(size/2), nn.NoBias()))
}

// Package nn has the layers of neural networks: plain functions of nodes, in terms of package ops.
//
//	func model(s *nn.Scope, x *gorgonia.Node) *gorgonia.Node {
//		x = nn.ReLU(s, nn.Linear(s.At("fc1"), x, 512))
//		x = nn.Dropout(s, x, 0.2)
//		return nn.Linear(s.At("fc2"), x, 10)
//	}
//
// A layer takes a [Scope], which belongs to one graph and owns its parameters by path. Names, shapes and initial values of parameters are as in
// PyTorch's modules: Linear at the path fc1 has fc1.weight, (out, in), and fc1.bias. Initial values depend on the seed and on the name, not on the order
// of the layers. Batches are axis 0, and sequences are (batch, time, width).
//
// With the option [In] parameters belong to a cudaops.Store, not to the graph, so one function of Go builds the graphs of training, of evaluation at another
// batch size, and of one token with a cache ([Cached]). Where the Store has a parameter, no initial values are made.
//
// A scope keeps the first error, with the path of its layer. Layers return nil after an error and accept nil, so a model needs no test of errors:
// [Scope.Err], [Scope.Grad] and [Scope.NewVM] return the error.
//
// A layer of one's own is such a function too: it makes parameters with [Scope.Parameter] and passes results of ops to [Scope.Keep].
package nn

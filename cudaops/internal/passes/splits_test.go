package passes

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Maps store the splits of images and of gradients w.r.t. outputs that convolutions read, in place of the elements if nothing else reads these, where kernels store them with channels last: results have the bits of those with splits by launches.
func TestImageSplits(t *testing.T) {
	r := testutil.Random(t)
	dev := H200
	dev.SMs = 1 // so that small convolutions are on the tensor cores
	stored := 0
	for draw := range 20 {
		channels, filters, side := 32+8*r.IntN(5), 32+8*r.IntN(5), 2*(4+r.IntN(4))
		if draw%3 == 0 {
			channels, side = channels+1+r.IntN(7), side+1
		}
		g, node := G.NewGraph(), testutil.Get[*G.Node](t)
		input := func(name string, shape ...int) *G.Node {
			return G.NewTensor(g, tensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...), G.WithInit(G.Gaussian(0, 1)))
		}
		x, w := input("x", 4+r.IntN(4), channels, side, side), input("w", filters, channels, 3, 3)
		y := node(ops.Map("a * tanh(a)", x))
		z := node(ops.Conv2d(y, w, nil, ops.Padding(1)))
		learnables := []*G.Node{x, w}
		if draw%2 == 0 { // two convolutions read the images
			v := input("v", filters, channels, 1, 1)
			z, learnables = node(ops.Add(z, node(ops.Conv2d(y, v, nil)))), append(learnables, v)
		}
		loss := node(ops.Mean(node(ops.Map("a * tanh(a)", z))))
		testutil.Get[G.Nodes](t)(G.Grad(loss, learnables...))
		computed := func(maps bool) (*lower.Graph, []G.Value) {
			l := testutil.Get[*lower.Graph](t)(lower.New(g, nil))
			for _, pass := range All[:1+slices.IndexFunc(All, func(p Pass) bool { return p.Name == "plan" })] {
				if pass.Name == "round" && !maps {
					pass.Run = castOperands
				}
				testutil.Do(t, pass.Run(l.Program, Target{Device: dev}))
				testutil.Do(t, program.Verify(l.Program))
			}
			return l, testutil.Get[[]G.Value](t)(l.Program.Eval(inputsOf(l)))
		}
		lowered, got := computed(true)
		if _, want := computed(false); !equal(t, got, want) {
			t.Fatalf("splits that maps store make other results:\n%v", lowered.Program)
		}
		given := map[*program.Value]bool{}
		for _, in := range lowered.Program.Instrs {
			if op, mapped := in.Op.(program.Map); mapped {
				for k, s := range op.Split {
					if s == codegen.SplitChannelsLast {
						given[in.Out[k]] = true
						stored++
					}
				}
			}
			conv, is := program.ConvOf(in.Op)
			for i := range conv.Split {
				if is && given[in.In[i]] != (conv.Ranges[i] > 0) {
					t.Errorf("%v reads operand %d, splits that a map has stored %v, with %d ranges", conv, i, given[in.In[i]], conv.Ranges[i])
				}
			}
		}
	}
	if stored < 10 {
		t.Errorf("got %d splits stored by maps, want some", stored)
	}
}

// A normalization before a convolution of large images is a launch for its sums and a Map that stores the splits; of smaller images it is one launch, whose result another one splits.
func TestSplitMaps(t *testing.T) {
	r := testutil.Random(t)
	for count, want := range map[int]int{256 + r.IntN(64): 2, 64: 0} {
		g, node := G.NewGraph(), testutil.Get[*G.Node](t)
		input := func(name string, shape ...int) *G.Node {
			return G.NewTensor(g, tensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...))
		}
		x, w, c := input("x", count, 128, 16, 16), input("w", 128, 128, 3, 3), G.NewVector(g, tensor.Float32, G.WithShape(128), G.WithName("c"))
		y := node(ops.Conv2d(x, w, nil, ops.Padding(1)))
		normed, _, _, err := ops.BatchNorm(y, c, c, c, c, 0.1, 1e-3)
		testutil.Do(t, err)
		z := node(ops.Conv2d(node(G.Rectify(normed)), w, nil, ops.Padding(1)))
		testutil.Get[G.Nodes](t)(G.Grad(node(ops.Mean(node(ops.Map("a * tanh(a)", z)))), w))
		p := testutil.Get[*lower.Graph](t)(lower.New(g, nil)).Program
		testutil.Do(t, Run(p, Target{Device: H200}, nil))
		stored := 0 // by Maps that read results of sums
		for _, in := range p.Instrs {
			op, mapped := in.Op.(program.Map)
			if mapped && len(op.Axes) > 0 && slices.ContainsFunc(op.Split, func(s codegen.Split) bool { return s != codegen.Unsplit }) {
				t.Errorf("%d images: got splits stored by %v", count, op)
			}
			sums := func(v *program.Value) bool {
				of, mapped := v.Base.Def.Op.(program.Map)
				return mapped && len(of.Axes) > 0
			}
			if slices.Contains(op.Split, codegen.SplitChannelsLast) && slices.ContainsFunc(in.In, sums) {
				stored++
			}
		}
		if stored != want {
			t.Errorf("%d images: got %d Maps that read results of sums and store splits, want %d:\n%v", count, stored, want, p)
		}
	}
}

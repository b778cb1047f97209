package lower

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// needed returns the names of the kernels that the outputs of a program depend on, up to the first space, "[" or "(".
func needed(p *program.Program) (list []string) {
	seen := map[*program.Instr]bool{}
	var need func(in *program.Instr)
	need = func(in *program.Instr) {
		if seen[in] {
			return
		}
		seen[in] = true
		for _, v := range in.In {
			need(v.Def)
			need(v.Base.Def)
		}
		if name, kernel := strings.CutPrefix(in.Op.String(), "kernel "); kernel {
			list = append(list, name[:strings.IndexAny(name+" ", " [(")])
		}
	}
	for _, v := range p.Outputs {
		need(v.Base.Def)
	}
	slices.Sort(list)
	return list
}

// TestConvolutions: Conv2d of Gorgonia is one convolution, and each gradient of it is, of drawn sizes. So it is where the product is an output. Package cudaops
// compares the values.
func TestConvolutions(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	pair := func(from, n int) []int { return []int{from + r.IntN(n), from + r.IntN(n)} }
	for range 30 {
		g, node := G.NewGraph(), testutil.Get[*G.Node](t)
		size := pair(2, 3)
		x := G.NewTensor(g, tensor.Float32, 4, G.WithShape(1+r.IntN(3), 1+r.IntN(3), 6+r.IntN(6), 6+r.IntN(6)), G.WithName("x"))
		w := G.NewTensor(g, tensor.Float32, 4, G.WithShape(1+r.IntN(4), x.Shape()[1], size[0], size[1]), G.WithName("w"))
		y := node(G.Conv2d(x, w, size, pair(0, 2), pair(1, 2), []int{1, 1}))
		gradients := testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(node(G.Square(y)))), x, w))
		l := testutil.Get[*Graph](t)(New(g, &Wanted{Only: append(gradients, y)}))
		testutil.Do(t, program.Verify(l.Program))
		if got, want := needed(l.Program), []string{"conv_f32", "conv_filters_f32", "conv_images_f32"}; !slices.Equal(got, want) {
			t.Errorf("x %v, w %v: got kernels %v, want %v:\n%v", x.Shape(), w.Shape(), got, want, l.Program)
		}
		l = testutil.Get[*Graph](t)(New(g, &Wanted{Only: []*G.Node{node(G.Ravel(y))}})) // a view of a view
		testutil.Do(t, program.Verify(l.Program))
		var product *G.Node
		for _, n := range g.AllNodes() {
			if n.Dims() == 2 && n.Op() != nil && strings.HasPrefix(n.Op().String(), "A ×") && product == nil {
				product = n
			}
		}
		l = testutil.Get[*Graph](t)(New(g, &Wanted{Only: []*G.Node{y}, Keep: []*G.Node{product}}))
		testutil.Do(t, program.Verify(l.Program))
		if got := needed(l.Program); product == nil || !slices.Equal(got, []string{"conv_f32"}) {
			t.Errorf("x %v, w %v, with %v an output: got kernels %v, want one convolution", x.Shape(), w.Shape(), product, got)
		}
	}
}

// TestConvolutionViews: views of a view that becomes one of the convolution are those of the copy in the order of the product.
func TestConvolutionViews(t *testing.T) {
	for _, side := range []int{1, 3} {
		for name, view := range map[string]func(y *G.Node) (*G.Node, error){
			"in another shape": func(y *G.Node) (*G.Node, error) { return G.Reshape(y, tensor.Shape{2, 1, side, side}) },
			"filters first":    func(y *G.Node) (*G.Node, error) { return G.Transpose(y, 1, 0, 2, 3) },
		} {
			g, node := G.NewGraph(), testutil.Get[*G.Node](t)
			x := G.NewTensor(g, tensor.Float32, 4, G.WithShape(1, 2, side, side), G.WithName("x"))
			w := G.NewTensor(g, tensor.Float32, 4, G.WithShape(2, 2, 1, 1), G.WithName("w"))
			y := node(G.Conv2d(x, w, tensor.Shape{1, 1}, []int{0, 0}, []int{1, 1}, []int{1, 1}))
			l := testutil.Get[*Graph](t)(New(g, &Wanted{Only: []*G.Node{node(view(y)), y}}))
			if err := program.Verify(l.Program); err != nil {
				t.Errorf("%s, side %d: %v", name, side, err)
			}
		}
	}
}

package passes

import (
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The forward pass of attention is one instruction, with statistics where gradients need them. The gradients that the graph uses are another one.
func TestAttentionIsTwoInstructions(t *testing.T) {
	for _, c := range []struct {
		wrt  []int // of q, k, v
		want []string
	}{
		{nil, []string{"kernel Attention[causal 0.25]"}},
		{[]int{0, 1, 2}, []string{"kernel attention with statistics", "kernel attention gradient q k v"}},
		{[]int{2, 0}, []string{"kernel attention with statistics", "kernel attention gradient q v"}},
		{[]int{1}, []string{"kernel attention with statistics", "kernel AttentionGradient[k]"}},
	} {
		g := G.NewGraph()
		var in G.Nodes
		for i, rows := range []int{70, 90, 90} {
			in = append(in, G.NewTensor(g, tensor.Float32, 4, G.WithName("qkv"[i:i+1]), G.WithShape(2, 4, rows, 16)))
		}
		out := testutil.Get[*G.Node](t)(ops.Attention(in[0], in[1], in[2], ops.Causal()))
		var wrt G.Nodes
		for _, i := range c.wrt {
			wrt = append(wrt, in[i])
		}
		if len(wrt) == 0 {
			var v G.Value
			G.Read(out, &v)
		} else {
			testutil.Get[G.Nodes](t)(G.Grad(testutil.Get[*G.Node](t)(ops.Mean(testutil.Get[*G.Node](t)(ops.Map("a*a", out)))), wrt...))
		}
		list := slices.DeleteFunc(launches(t, g), func(name string) bool { return !strings.Contains(strings.ToLower(name), "attention") })
		if !slices.Equal(list, c.want) {
			t.Errorf("gradients w.r.t. inputs %v: got %q, want %q", c.wrt, list, c.want)
		}
	}
}

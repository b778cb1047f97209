package nn_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// bars are noisy images of a bar, whose place is the class.
func bars(c CNN, batch int, seed uint64) (x, labels *tensor.Dense) {
	r := rand.New(rand.NewPCG(seed, 3))
	x, labels = tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(batch, 1, c.Side, c.Side)), tensor.New(tensor.Of(tensor.Int64), tensor.WithShape(batch))
	for i := range batch {
		class := r.IntN(c.Classes)
		labels.Int64s()[i] = int64(class)
		for k := range c.Side * c.Side {
			v := 0.3 * r.NormFloat64()
			if k%c.Side*c.Classes/c.Side == class {
				v++
			}
			x.Float32s()[i*c.Side*c.Side+k] = float32(v)
		}
	}
	return x, labels
}

// share returns the share of images with the right class.
func (n *Network) share(t testing.TB, vm *cudaops.VM, c CNN, seed uint64) float64 {
	x, labels := bars(c, n.X.Shape()[0], seed)
	testutil.Do(t, G.Let(n.X, x))
	testutil.Do(t, G.Let(n.Labels, labels))
	testutil.Do(t, vm.RunAll())
	right, best := 0, n.Best.Value().Data().([]int)
	for i, label := range labels.Int64s() {
		if best[i] == int(label) {
			right++
		}
	}
	return float64(right) / float64(len(best))
}

// TestCNN trains with running means on the device, evaluates at another batch size and predicts single images from the same Store, and another program
// loads what it saved.
func TestCNN(t *testing.T) {
	c := CNN{Side: 8, Channels: 4, Classes: 4}
	s := cudaops.NewStore()
	defer s.Close()
	n := testutil.Get[*Network](t)(c.Build(32, nn.In(s)))
	training := testutil.Get[*cudaops.VM](t)(n.NewVM(cudaops.OnAny(), cudaops.Outputs(n.Loss), cudaops.ReadEvery(50), cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.01)), n.Parameters()...)))
	defer training.Close()
	for i := range 150 {
		x, labels := bars(c, 32, uint64(i))
		testutil.Do(t, G.Let(n.X, x))
		testutil.Do(t, G.Let(n.Labels, labels))
		testutil.Do(t, training.RunAll())
	}
	of := func(batch int, s *cudaops.Store) (*Network, *cudaops.VM) {
		n := testutil.Get[*Network](t)(c.Build(batch, nn.In(s), nn.Evaluation()))
		return n, testutil.Get[*cudaops.VM](t)(n.NewVM(cudaops.OnAny(), cudaops.Outputs(n.Best)))
	}
	large, evaluation := of(200, s)
	defer evaluation.Close()
	if got := large.share(t, evaluation, c, 1000); got < 0.95 {
		t.Errorf("%v of the images are classified right, want 0.95", got)
	}
	single, prediction := of(1, s)
	defer prediction.Close()
	if got := single.share(t, prediction, c, 1001); got < 1 {
		t.Errorf("a single image is not classified right")
	}
	path := filepath.Join(t.TempDir(), "cnn.safetensors")
	testutil.Do(t, checkpoint.SaveStore(path, s))
	other := cudaops.NewStore()
	defer other.Close()
	loaded := testutil.Get[checkpoint.Loaded](t)(checkpoint.LoadStore(path, other))
	if len(loaded.Missing)+len(loaded.Unused) > 0 {
		t.Errorf("got %+v of the program's own file", loaded)
	}
	again, vm := of(200, other)
	defer vm.Close()
	if got := again.share(t, vm, c, 1000); got < 0.95 {
		t.Errorf("%v of the images are classified right by another program, want 0.95", got)
	}
	running := 0
	parameters := testutil.Get[[]cudaops.Learnable](t)(other.Parameters())
	for _, p := range parameters {
		if p.Name == "features.0.bn.running_mean" && p.Value.Data().([]float32)[0] != 0 {
			running++
		}
	}
	if running != 1 {
		t.Errorf("the running mean of the first layer is not in the file: got %d parameters", len(parameters))
	}
}

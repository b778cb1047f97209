package train_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func net(s *nn.Scope, x *G.Node) *G.Node {
	x = nn.ReLU(s, nn.BatchNorm(s.At("norm"), nn.Linear(s.At("fc1"), x, 32)))
	return nn.Linear(s.At("fc2"), nn.Dropout(s, x, 0.1), 3)
}

// flowers draws rows of three classes that overlap a little.
func flowers(n int) (rows []float32, labels []int) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		class := i % 3
		for k := range 4 {
			rows = append(rows, float32(r.NormFloat64()+3*float64((class+k)%3)))
		}
		labels = append(labels, class)
	}
	return rows, labels
}

// The code of docs/from-pytorch.md.
func Example_fromPyTorch() {
	folder, err := os.MkdirTemp("", "")
	check(err)
	defer os.RemoveAll(folder)
	path, best, last := filepath.Join(folder, "net.safetensors"), filepath.Join(folder, "best.safetensors"), filepath.Join(folder, "last.safetensors")
	rows, labels := flowers(1000)

	store := cudaops.NewStore()
	defer store.Close()
	s := nn.New(G.NewGraph(), nn.In(store), nn.Seed(0))
	x, y := s.Input("x", tensor.Float32, 32, 4), s.Input("y", tensor.Int, 32)
	loss := nn.CrossEntropy(s, net(s, x), y)
	check(s.Grad(loss))
	solver := G.NewAdamW(cudaops.WeightDecay(0.01))
	vm, err := s.NewVM(cudaops.OnAny(), cudaops.Train(solver, s.Parameters()...), cudaops.ClipNorm(1))
	check(err)
	defer vm.Close()

	G.WithLearnRate(0.01)(solver)
	for k := range 28 {
		check(vm.Let(x, rows[128*k:][:128]))
		check(vm.Let(y, labels[32*k:][:32]))
		check(vm.RunAll()) // forward, backward, clipping and step
	}
	fmt.Println("learns:", loss.Value().Data().(float32) < 0.5)

	e := nn.New(G.NewGraph(), nn.In(store), nn.Evaluation())
	heldX, heldY := e.Input("x", tensor.Float32, 64, 4), e.Input("y", tensor.Int, 64)
	scores := net(e, heldX)
	test, err := e.NewVM(cudaops.OnAny(), cudaops.Outputs(scores))
	check(err)
	defer test.Close()
	held, err := train.NewData(train.Columns{heldX: rows[3600:], heldY: labels[900:]})
	check(err)

	data, err := train.NewData(train.Columns{x: rows[:3600], y: labels[:900]})
	check(err)
	_, err = train.Run(context.Background(), vm, loss, data.Shuffle(0),
		train.Epochs(30), train.LearnRate(solver, train.Cosine(0.01, 28, 30*28)),
		train.Validate(test, held, train.Accuracy(scores, heldY)),
		train.EarlyStop(5), train.KeepBest(best), train.Checkpoint(last, 100))
	check(err)
	metrics, err := train.Evaluate(context.Background(), test, held, train.Accuracy(scores, heldY), train.F1(scores, heldY))
	check(err)
	fmt.Println("accurate:", metrics["accuracy"] > 0.9, metrics["F1"] > 0.9)

	check(checkpoint.SaveStore(path, store))
	_, err = checkpoint.LoadStore(path, store, checkpoint.Rename(func(name string) string {
		if strings.HasSuffix(name, ".num_batches_tracked") {
			return "" // PyTorch's BatchNorm has it; it is not loaded
		}
		return strings.TrimPrefix(name, "module.")
	}))
	check(err)

	cache, err := cudaops.NewCache(store, func(n int) (*cudaops.Sized, error) {
		s := nn.New(G.NewGraph(), nn.In(store), nn.Evaluation())
		x := s.Input("x", tensor.Float32, n, 4)
		p := s.Keep(ops.SoftMax(net(s, x), -1))
		return &cudaops.Sized{Graph: s.Graph(), In: G.Nodes{x}, Out: G.Nodes{p}, Options: append(s.Options(), cudaops.OnAny())}, s.Err()
	}, cudaops.Limit{Rows: 64, Sizes: []int{1, 8, 64}})
	check(err)
	defer cache.Close()
	out, err := cache.Run(context.Background(), tensor.New(tensor.WithShape(5, 4), tensor.WithBacking(rows[:20])))
	check(err)
	fmt.Println("probabilities:", out[0].Shape())
	// Output:
	// learns: true
	// accurate: true true
	// probabilities: (5, 3)
}

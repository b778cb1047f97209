package train_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func letters(s *nn.Scope, ids *G.Node, count int, opts ...nn.LayerOption) *G.Node {
	x := nn.LSTM(s.At("rnn"), nn.Embedding(s.At("emb"), ids, count, 16), 32, opts...)
	return nn.Linear(s.At("head"), x, count)
}

// The code of docs/from-pytorch.md for text.
func Example_fromPyTorchText() {
	const alphabet = " acdefgiknoprstx,."
	text, count := strings.Repeat("sing a song of six pence, a packet of rice. ", 40), len(alphabet)
	var ids, following []int
	for i := range len(text) - 1 {
		ids, following = append(ids, strings.IndexByte(alphabet, text[i])), append(following, strings.IndexByte(alphabet, text[i+1]))
	}
	store := cudaops.NewStore()
	defer store.Close()
	s := nn.New(G.NewGraph(), nn.In(store))
	x, y := s.Input("x", tensor.Int, 8, 12), s.Input("y", tensor.Int, 8, 12)
	loss := nn.CrossEntropy(s, letters(s, x, count), y)
	check(s.Grad(loss))
	data, err := train.NewData(train.Columns{x: ids[:8*12*16], y: following[:8*12*16]})
	check(err)

	var weights, others G.Nodes
	for _, p := range s.Parameters() {
		if p.Dims() > 1 { // or by p.Name()
			weights = append(weights, p)
		} else {
			others = append(others, p)
		}
	}
	decaying, plain := G.NewAdamW(cudaops.WeightDecay(0.1)), G.NewAdamW(cudaops.WeightDecay(0))
	vm, err := s.NewVM(cudaops.OnAny(), cudaops.Train(decaying, weights...), cudaops.Train(plain, others...))
	check(err)
	defer vm.Close()
	rate := train.Cosine(0.03, 10, 12*16)
	_, err = train.Run(context.Background(), vm, loss, data.Shuffle(0), train.Epochs(12), train.LearnRate(decaying, rate), train.LearnRate(plain, rate))
	check(err)

	e := nn.New(G.NewGraph(), nn.In(store), nn.Evaluation())
	heldX, heldY := e.Input("x", tensor.Int, 4, 12), e.Input("y", tensor.Int, 4, 12)
	each := nn.CrossEntropy(e, letters(e, heldX, count), heldY, ops.PerRow()) // reduction="none"
	test, err := e.NewVM(cudaops.OnAny(), cudaops.Outputs(each))
	check(err)
	defer test.Close()
	for i := range following {
		if i%12 < 3 {
			following[i] = -100 // the first letters of a row do not count: they have little before them
		}
	}
	held, err := train.NewData(train.Columns{heldX: ids[8*12*16:][:12*13], heldY: following[8*12*16:][:12*13]})
	check(err)
	metrics, err := train.Evaluate(context.Background(), test, held, train.Perplexity(each, heldY), train.Mean("loss", each, heldY))
	check(err)
	fmt.Println("perplexity below 1.2:", metrics["perplexity"] < 1.2, metrics["loss"] < 0.2)

	one := nn.New(G.NewGraph(), nn.In(store), nn.Evaluation())
	last := one.Input("x", tensor.Int, 1, 1)
	logits := one.Keep(ops.Reshape(letters(one, last, count, nn.Carry()), 1, count))
	next := one.Keep(ops.Categorical(logits, 0.5, count, 1)) // temperature, the k likeliest, the share p of probability
	writer, err := one.NewVM(cudaops.OnAny(), cudaops.Outputs(next), cudaops.Seed(1))
	check(err)
	defer writer.Close()
	check(one.Reset()) // to zeros
	song := "sing a song"
	for i := range 42 {
		check(writer.Let(last, []int{strings.IndexByte(alphabet, song[i])}))
		check(writer.RunAll())
		if i+1 == len(song) { // behind the prompt
			song += alphabet[next.Value().Data().([]int)[0]:][:1]
		}
	}
	fmt.Println(song)
	// Output:
	// perplexity below 1.2: true true
	// sing a song of six pence, a packet of rice.
}

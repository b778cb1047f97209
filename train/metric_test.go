package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// passing is a VM whose outputs are its inputs, and a source of drawn rows: scores by class, labels, one-hot labels, a score and a
// label of two classes, and a loss.
type passing struct {
	g                                            *G.ExprGraph
	scores, labels, dense, score, positive, loss *G.Node // outputs, but labels, dense and positive, which are inputs
	vm                                           *cudaops.VM
	rows                                         int
	scoreRows, lossRows, scoreOfOne              []float64
	labelRows, positiveRows                      []int
	classes                                      int
	data                                         *Data
}

func newPassing(t *testing.T, r *rand.Rand, batch, rows, classes int) *passing {
	node := testutil.Get[*G.Node](t)
	p := &passing{g: G.NewGraph(), rows: rows, classes: classes}
	in := func(name string, of tensor.Dtype, shape ...int) *G.Node {
		return G.NewTensor(p.g, of, len(shape), G.WithName(name), G.WithShape(shape...))
	}
	store := cudaops.NewStore()
	t.Cleanup(func() { testutil.Do(t, store.Close()) })
	one := G.NewScalar(p.g, tensor.Float64, G.WithName("one"), G.WithValue(1.0))
	scores, loss, score := in("scores", tensor.Float64, batch, classes), in("loss", tensor.Float64, batch), in("score", tensor.Float64, batch)
	p.labels, p.positive, p.dense = in("labels", tensor.Int, batch), in("positive", tensor.Int, batch), in("dense", tensor.Float64, batch, classes)
	p.scores, p.loss, p.score = node(G.Mul(scores, one)), node(G.Mul(loss, one)), node(G.Mul(score, one))
	var err error
	p.vm, err = cudaops.NewVM(p.g, cudaops.OnHost(), cudaops.Inference(), cudaops.In(store, one))
	testutil.Do(t, err)
	t.Cleanup(func() { testutil.Do(t, p.vm.Close()) })
	var dense []float64
	for range rows {
		label := r.IntN(classes)
		for k := range classes {
			p.scoreRows = append(p.scoreRows, math.Round(3*r.NormFloat64())) // some are equal
			if dense = append(dense, 0); k == label {
				dense[len(dense)-1] = 1
			}
		}
		p.labelRows, p.positiveRows = append(p.labelRows, label), append(p.positiveRows, r.IntN(2))
		p.lossRows, p.scoreOfOne = append(p.lossRows, r.ExpFloat64()), append(p.scoreOfOne, r.NormFloat64())
	}
	p.data = testutil.Get[*Data](t)(NewData(Columns{scores: p.scoreRows, loss: p.lossRows, score: p.scoreOfOne,
		p.labels: p.labelRows, p.positive: p.positiveRows, p.dense: dense}))
	return p
}

// reference counts by hand: accuracy, macro F1, those of two classes, mean and perplexity.
func (p *passing) reference(threshold float64) map[string]float64 {
	answers, binary := make([]int, p.rows), make([]int, p.rows)
	sum := 0.0
	for i := range p.rows {
		for k := range p.classes {
			if p.scoreRows[i*p.classes+k] > p.scoreRows[i*p.classes+answers[i]] {
				answers[i] = k
			}
		}
		if p.scoreOfOne[i] > threshold {
			binary[i] = 1
		}
		sum += p.lossRows[i] / float64(p.rows)
	}
	accuracy := func(labels, answers []int) float64 {
		right := 0
		for i := range labels {
			if labels[i] == answers[i] {
				right++
			}
		}
		return float64(right) / float64(len(labels))
	}
	f1 := func(labels, answers []int, class int) (f float64, occurs bool) { // by precision and recall
		both, found, there := 0.0, 0.0, 0.0
		for i := range labels {
			if labels[i] == class {
				there++
			}
			if answers[i] == class {
				found++
				if labels[i] == class {
					both++
				}
			}
		}
		if both == 0 {
			return 0, found+there > 0
		}
		precision, recall := both/found, both/there
		return 2 * precision * recall / (precision + recall), true
	}
	macro, occur := 0.0, 0.0
	for class := range p.classes {
		if f, occurs := f1(p.labelRows, answers, class); occurs {
			macro, occur = macro+f, occur+1
		}
	}
	positive, _ := f1(p.positiveRows, binary, 1)
	return map[string]float64{"accuracy": accuracy(p.labelRows, answers), "accuracy of one-hot": accuracy(p.labelRows, answers), "F1": macro / occur,
		"binary accuracy": accuracy(p.positiveRows, binary), "binary F1": positive, "mean": sum, "perplexity": math.Exp(sum)}
}

func named(name string, m Metric) Metric {
	m.Name = name
	return m
}

// Metrics are those of all rows, each counted once, whatever rows remain for the last batch.
func TestMetrics(t *testing.T) {
	seed := testutil.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 40 {
		batch, rows, classes, threshold := 1+r.IntN(9), 2+r.IntN(60), 2+r.IntN(5), r.NormFloat64()
		name := fmt.Sprintf("seed %d: %d rows in batches of %d, %d classes", seed, rows, batch, classes)
		p := newPassing(t, r, batch, rows, classes)
		var source Source = p.data
		if r.IntN(2) == 0 {
			source = p.data.Shuffle(3)
		}
		got, err := Evaluate(t.Context(), p.vm, source, Accuracy(p.scores, p.labels), named("accuracy of one-hot", Accuracy(p.scores, p.dense)), F1(p.scores, p.labels),
			named("binary accuracy", BinaryAccuracy(p.score, p.positive, threshold)), named("binary F1", BinaryF1(p.score, p.positive, threshold)),
			Mean("mean", p.loss), Perplexity(p.loss))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for metric, want := range p.reference(threshold) {
			if !(math.Abs(got[metric]-want) <= 1e-12*(1+math.Abs(want))) {
				t.Errorf("%s: %s is %v, want %v", name, metric, got[metric], want)
			}
		}
	}
}

// Scores of NaN make every metric NaN, rows with the ignored label do not count, and a wrong label is an error.
func TestOddScores(t *testing.T) {
	f := func(x ...float64) G.Value { return tensor.New(tensor.WithBacking(x)) }
	rows := func(x ...float64) G.Value { return tensor.New(tensor.WithShape(len(x)/2, 2), tensor.WithBacking(x)) }
	ints := func(x ...int) G.Value { return tensor.New(tensor.WithBacking(x)) }
	nan := math.NaN()
	for _, c := range []struct {
		name  string
		m     Metric
		v     []G.Value
		value float64
		err   string
	}{
		{"NaN", Accuracy(nil, nil), []G.Value{rows(1, nan, 0, 1), ints(0, 1)}, nan, ""},
		{"NaN", F1(nil, nil), []G.Value{rows(1, nan, 0, 1), ints(0, 1)}, nan, ""},
		{"NaN", BinaryAccuracy(nil, nil, 0), []G.Value{f(nan, 1), ints(0, 1)}, nan, ""},
		{"NaN", BinaryF1(nil, nil, 0), []G.Value{f(nan, 1), ints(0, 1)}, nan, ""},
		{"NaN", Perplexity(nil), []G.Value{f(nan, 1)}, nan, ""},
		{"Inf", Perplexity(nil), []G.Value{f(math.Inf(1), 1)}, math.Inf(1), ""},
		{"infinite scores", Accuracy(nil, nil), []G.Value{rows(math.Inf(-1), 0, math.Inf(1), 0), ints(1, 0)}, 1, ""},
		{"ignored", Accuracy(nil, nil), []G.Value{rows(0, 1, 1, 0, 0, 1), ints(1, -100, 0)}, 0.5, ""},
		{"all ignored", Accuracy(nil, nil), []G.Value{rows(0, 1), ints(-100)}, nan, ""},
		{"all ignored", F1(nil, nil), []G.Value{rows(0, 1), ints(-100)}, nan, ""},
		{"no positive", BinaryF1(nil, nil, 0), []G.Value{f(-1, -2), ints(0, 0)}, 0, ""},
		{"label 2", Accuracy(nil, nil), []G.Value{rows(0, 1, 1, 0), ints(1, 2)}, 0, "row 1: got the label 2, want 0 to 1"},
		{"label 0.5", F1(nil, nil), []G.Value{rows(0, 1), f(0.5)}, 0, "row 0: got the label 0.5"},
		{"labels", Accuracy(nil, nil), []G.Value{rows(0, 1, 1, 0), ints(1, 1, 1)}, 0, "got labels of shape (3) for scores of shape (2, 2)"},
		{"one score", Accuracy(nil, nil), []G.Value{f(0, 1), ints(1, 1)}, 0, "want at least two classes"},
		{"threshold", BinaryF1(nil, nil, nan), []G.Value{f(0), ints(1)}, 0, "threshold NaN"},
		{"ignored", Perplexity(nil, nil), []G.Value{f(1, 100, 3), ints(1, -100, 0)}, math.Exp(2), ""},
		{"ignored", Mean("mean", nil, nil), []G.Value{rows(1, 0, 3, 100), tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]int64{5, -100, 0, -100}))}, 2, ""},
		{"ignored", Mean("mean", nil), []G.Value{f(-100, 4)}, -48, ""},
		{"all ignored", Perplexity(nil, nil), []G.Value{f(1), ints(-100)}, nan, ""},
		{"labels of losses", Perplexity(nil, nil), []G.Value{tensor.New(tensor.FromScalar(1.0)), ints(1, 2)}, 0, "got labels of shape (2) for elements of shape (), want one for each"},
		{"labels in another order", Accuracy(nil, nil), []G.Value{tensor.New(tensor.WithShape(2, 3, 2), tensor.WithBacking(make([]float64, 12))), tensor.New(tensor.WithShape(3, 2), tensor.WithBacking(make([]int, 6)))},
			0, "got labels of shape (3, 2) for scores of shape (2, 3, 2)"},
		{"labels of sequences", Accuracy(nil, nil), []G.Value{tensor.New(tensor.WithShape(2, 3, 2), tensor.WithBacking(make([]float64, 12))), ints(0, 0, 0, 1, 1, 1)}, 0.5, ""},
		{"labels with an axis", Accuracy(nil, nil), []G.Value{rows(0, 1, 1, 0), tensor.New(tensor.WithShape(2, 1), tensor.WithBacking([]int{1, 1}))}, 0.5, ""},
		{"binary label", BinaryF1(nil, nil, 0), []G.Value{f(0), ints(3)}, 0, "row 0: got the label 3, want 0 or 1"},
		{"binary labels", BinaryAccuracy(nil, nil, 0), []G.Value{f(0), ints(1, 1)}, 0, "want as many"},
	} {
		sums, err := c.m.Sums(c.v)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got error %v, want %q", c.name, err, c.err)
			}
			continue
		}
		testutil.Do(t, err)
		if got := c.m.Value(sums); got != c.value && !(math.IsNaN(got) && math.IsNaN(c.value)) {
			t.Errorf("%s: %s is %v, want %v", c.name, c.m.Name, got, c.value)
		}
	}
}

// What Evaluate refuses.
func TestEvaluateErrors(t *testing.T) {
	p := newPassing(t, rand.New(rand.NewPCG(1, 2)), 4, 10, 3)
	good := Mean("mean", p.loss)
	whole := testutil.Get[*G.Node](t)(G.Sum(p.loss))
	scalar, err := cudaops.NewVM(p.g, cudaops.OnHost(), cudaops.Inference(), cudaops.Outputs(whole))
	testutil.Do(t, err)
	defer scalar.Close()
	training, plain := newLine(t, false), newLine(t, false)
	other, err := cudaops.NewVM(plain.g, cudaops.OnHost())
	testutil.Do(t, err)
	defer other.Close()
	seldom := newPassing(t, rand.New(rand.NewPCG(1, 2)), 4, 10, 3)
	every, err := cudaops.NewVM(seldom.g, cudaops.OnHost(), cudaops.Inference(), cudaops.ReadEvery(2))
	testutil.Do(t, err)
	defer every.Close()
	for _, c := range []struct {
		want    string
		vm      *cudaops.VM
		source  Source
		metrics []Metric
	}{
		{"got a nil VM or source", nil, p.data, []Metric{good}},
		{"got a nil VM or source", p.vm, nil, []Metric{good}},
		{"got no metric", p.vm, p.data, nil},
		{"got a VM that makes steps", training.vm, p.data, []Metric{good}},
		{"want one with the option cudaops.Inference", other, p.data, []Metric{good}},
		{"got two metrics called \"mean\"", p.vm, p.data, []Metric{good, good}},
		{"got a metric without name", p.vm, p.data, []Metric{named("", good)}},
		{"metric accuracy: got no nodes or a nil node", p.vm, p.data, []Metric{Accuracy(p.scores, nil)}},
		{"metric own: got a nil Sums or Value", p.vm, p.data, []Metric{{Name: "own", Nodes: good.Nodes}}},
		{"want an output of the VM", p.vm, p.data, []Metric{Mean("mean", training.loss)}},
		{"want an input in the batches", p.vm, p.data, []Metric{Mean("mean", training.x)}},
		{"batch 2: metric mean: node", scalar, p.data, []Metric{Mean("mean", whole)}},
		{"without cudaops.ReadEvery", every, seldom.data, []Metric{Mean("mean", seldom.loss)}},
		{"the data is broken", p.vm, Seq(func(yield func(Batch, error) bool) { yield(nil, fmt.Errorf("the data is broken")) }), []Metric{good}},
		{"the batches panicked", p.vm, Seq(func(func(Batch, error) bool) { panic("oh") }), []Metric{good}},
		{"has no batches", p.vm, Seq(func(func(Batch, error) bool) {}), []Metric{good}},
		{"metric accuracy: row 0: got the label 7", p.vm, p.data, []Metric{{Name: "accuracy", Nodes: good.Nodes, Value: ratio,
			Sums: func([]G.Value) ([]float64, error) {
				return Accuracy(nil, nil).Sums([]G.Value{tensor.New(tensor.WithShape(1, 2), tensor.WithBacking([]float64{0, 1})), tensor.New(tensor.WithBacking([]int{7}))})
			}}}},
	} {
		_, err := Evaluate(t.Context(), c.vm, c.source, c.metrics...)
		wantError(t, err, c.want)
	}
	sums := 0
	growing := Metric{Name: "own", Nodes: good.Nodes, Value: ratio, Sums: func([]G.Value) ([]float64, error) { sums++; return make([]float64, sums), nil }}
	_, err = Evaluate(t.Context(), p.vm, p.data, growing)
	wantError(t, err, "batch 1: metric own: got 2 sums, want 1")
}

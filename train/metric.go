package train

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Metric is a number that [Evaluate] computes over the rows of a data set. It is a function of sums over the rows, so it does
// not depend on the size of batches. A program may have metrics of its own.
type Metric struct {
	Name string
	// Min reports whether lower values are better.
	Min bool
	// Nodes are outputs of the VM, or inputs in the batches. Axis 0 of each counts rows, or several elements a row. Scalars are allowed
	// if no batch is padded.
	Nodes gorgonia.Nodes
	// Sums returns what a batch adds to the sums, from the values of Nodes without the copies that pad a batch. It always
	// returns the same number of sums.
	Sums func(values []gorgonia.Value) ([]float64, error)
	// Value returns the metric from the sums of all batches.
	Value func(sums []float64) float64
}

// check returns an error unless Evaluate can compute the metric.
func (m *Metric) check() error {
	switch {
	case m.Name == "":
		return errors.New("got a metric without name")
	case len(m.Nodes) == 0 || slices.Contains(m.Nodes, nil):
		return fmt.Errorf("metric %s: got no nodes or a nil node", m.Name)
	case m.Sums == nil || m.Value == nil:
		return fmt.Errorf("metric %s: got a nil Sums or Value", m.Name)
	}
	return nil
}

// Mean is the mean of the elements of a node, such as the losses of the rows. Lower values are better. With labels, one for each element, elements
// whose label is -100 do not count, as in [Accuracy].
func Mean(name string, of *gorgonia.Node, labels ...*gorgonia.Node) Metric {
	nodes := append(gorgonia.Nodes{of}, labels...)
	return Metric{Name: name, Min: true, Nodes: nodes, Value: ratio, Sums: func(v []gorgonia.Value) ([]float64, error) {
		list, err := numbers(v[0])
		if err != nil {
			return nil, err
		}
		out := make([]bool, len(list))
		for _, l := range v[1:] {
			of, err := numbers(l)
			if err != nil {
				return nil, fmt.Errorf("labels: %w", err)
			}
			if !aligned(l.Shape(), v[0].Shape()) {
				return nil, fmt.Errorf("got labels of shape %v for elements of shape %v, want one for each, as of ops.CrossEntropy with ops.PerRow", l.Shape(), v[0].Shape())
			}
			for i, label := range of {
				out[i] = out[i] || label == ignored
			}
		}
		sum, n := 0.0, 0.0
		for i, x := range list {
			if !out[i] {
				sum, n = sum+x, n+1
			}
		}
		return []float64{sum, n}, nil
	}}
}

func ratio(sums []float64) float64 { return sums[0] / sums[1] }

// Perplexity is exp(mean of the losses), where a loss is the negative natural logarithm of a probability, of each token: nn.CrossEntropy with ops.PerRow.
// With labels, losses whose label is -100 do not count. The mean of each batch in place of the losses makes batches count alike.
func Perplexity(losses *gorgonia.Node, labels ...*gorgonia.Node) Metric {
	m := Mean("perplexity", losses, labels...)
	m.Value = func(sums []float64) float64 { return math.Exp(ratio(sums)) }
	return m
}

// Accuracy is the share of rows whose label has the highest score; of equal scores the first counts. scores have at least two
// classes along the last axis. labels are the numbers of the classes, of the shape of scores without that axis, or have the
// shape of scores, such as one-hot rows: then the label is the class of the highest. Rows with the label -100 do not count, as in
// [ops.CrossEntropy]. A score of NaN makes the metric NaN; a label that is no class is an error.
//
// [ops.CrossEntropy]: https://pkg.go.dev/github.com/stheno-ml/stheno/ops#CrossEntropy
func Accuracy(scores, labels *gorgonia.Node) Metric {
	return accuracy(scores, labels, answers)
}

// BinaryAccuracy is the share of rows where score > threshold agrees with the label. scores and labels have as many elements; labels
// are 0 or 1. The threshold is 0 for logits and 0.5 for probabilities.
func BinaryAccuracy(scores, labels *gorgonia.Node, threshold float64) Metric {
	return accuracy(scores, labels, binary(threshold))
}

func accuracy(scores, labels *gorgonia.Node, each answerer) Metric {
	return Metric{Name: "accuracy", Nodes: gorgonia.Nodes{scores, labels}, Value: ratio, Sums: func(v []gorgonia.Value) ([]float64, error) {
		right, count := 0.0, 0.0
		_, err := each(v[0], v[1], func(label, answer int) {
			count++
			switch answer {
			case label:
				right++
			case unknown:
				right = math.NaN()
			}
		})
		return []float64{right, count}, err
	}}
}

// F1 is the macro-averaged F1 score: the mean of 2 tp / (2 tp + fp + fn) over the classes that occur among labels or answers, or NaN if no row
// counts. Scores and labels are those of [Accuracy].
func F1(scores, labels *gorgonia.Node) Metric {
	return f1(scores, labels, answers, 0)
}

// BinaryF1 is the F1 score of the positive class, 2 tp / (2 tp + fp + fn), or 0 if neither labels nor answers have it. Scores and
// labels are those of [BinaryAccuracy].
func BinaryF1(scores, labels *gorgonia.Node, threshold float64) Metric {
	return f1(scores, labels, binary(threshold), 1)
}

// f1 averages over the classes from first on.
func f1(scores, labels *gorgonia.Node, each answerer, first int) Metric {
	return Metric{Name: "F1", Nodes: gorgonia.Nodes{scores, labels}, Sums: func(v []gorgonia.Value) ([]float64, error) {
		var pairs [][2]int
		classes, err := each(v[0], v[1], func(label, answer int) { pairs = append(pairs, [2]int{label, answer}) })
		if err != nil {
			return nil, err
		}
		sums := make([]float64, 2*classes) // of each class 2 tp, and 2 tp + fp + fn
		for _, p := range pairs {
			if p[1] == unknown {
				sums[2*first+1] = math.NaN()
				continue
			}
			for _, class := range p {
				sums[2*class+1]++
			}
			if p[0] == p[1] {
				sums[2*p[0]] += 2
			}
		}
		return sums, nil
	}, Value: func(sums []float64) float64 {
		sum, classes := 0.0, 0.0
		for k := 2 * first; k < len(sums); k += 2 {
			if sums[k+1] != 0 {
				sum, classes = sum+sums[k]/sums[k+1], classes+1
			}
		}
		if classes == 0 && first > 0 {
			return 0
		}
		return sum / classes
	}}
}

// answerer calls a function with the label and the answer of each row that counts, and returns the number of classes. The answer is
// unknown if a score is NaN.
type answerer func(scores, labels gorgonia.Value, f func(label, answer int)) (classes int, err error)

const (
	unknown = -1
	ignored = -100
)

// answers is the answerer of scores by class.
func answers(scores, labels gorgonia.Value, f func(label, answer int)) (classes int, err error) {
	shape := scores.Shape()
	if len(shape) > 0 {
		classes = shape[len(shape)-1]
	}
	if len(shape) < 2 || classes < 2 {
		return 0, fmt.Errorf("got scores of shape %v, want at least two classes along the last axis, or a binary metric", shape)
	}
	list, err := numbers(scores)
	if err != nil {
		return 0, fmt.Errorf("scores: %w", err)
	}
	of, err := numbers(labels)
	if err != nil {
		return 0, fmt.Errorf("labels: %w", err)
	}
	rows := len(list) / classes
	dense := labels.Shape().Eq(shape)
	if !dense && !aligned(labels.Shape(), shape[:len(shape)-1]) {
		return 0, fmt.Errorf("got labels of shape %v for scores of shape %v, want a label for each of %d rows, or the scores' shape", labels.Shape(), shape, rows)
	}
	for i := range rows {
		label := ignored
		switch {
		case dense:
			if label = highest(of[i*classes:][:classes]); label == unknown {
				return 0, fmt.Errorf("row %d: got the label NaN", i)
			}
		default:
			label = int(of[i])
			if float64(label) != of[i] || (label < 0 || label >= classes) && label != ignored {
				return 0, fmt.Errorf("row %d: got the label %v, want 0 to %d, or %d for a row that does not count", i, of[i], classes-1, ignored)
			}
		}
		if label != ignored {
			f(label, highest(list[i*classes:][:classes]))
		}
	}
	return classes, nil
}

// aligned reports whether two values have as many elements in the same order: (batch, time) and (batch, time, 1) or (batch·time), but not (time, batch).
func aligned(a, b tensor.Shape) bool {
	axes := func(s tensor.Shape) tensor.Shape {
		return slices.DeleteFunc(s.Clone(), func(n int) bool { return n == 1 })
	}
	a, b = axes(a), axes(b)
	return a.TotalSize() == b.TotalSize() && (len(a) != len(b) || slices.Equal(a, b))
}

// highest returns the index of the highest number, or unknown if there is a NaN.
func highest(list []float64) (at int) {
	for i, x := range list {
		if math.IsNaN(x) {
			return unknown
		}
		if x > list[at] {
			at = i
		}
	}
	return at
}

// binary returns the answerer of one score a row.
func binary(threshold float64) answerer {
	return func(scores, labels gorgonia.Value, f func(label, answer int)) (classes int, err error) {
		list, err := numbers(scores)
		if err != nil {
			return 0, fmt.Errorf("scores: %w", err)
		}
		of, err := numbers(labels)
		switch {
		case err != nil:
			return 0, fmt.Errorf("labels: %w", err)
		case !aligned(labels.Shape(), scores.Shape()):
			return 0, fmt.Errorf("got labels of shape %v for scores of shape %v, want as many in the same order", labels.Shape(), scores.Shape())
		case math.IsNaN(threshold):
			return 0, errors.New("got the threshold NaN, want a number")
		}
		for i, x := range list {
			if of[i] != 0 && of[i] != 1 {
				return 0, fmt.Errorf("row %d: got the label %v, want 0 or 1", i, of[i])
			}
			answer := 0
			switch {
			case math.IsNaN(x):
				answer = unknown
			case x > threshold:
				answer = 1
			}
			f(int(of[i]), answer)
		}
		return 2, nil
	}
}

// numbers returns the elements of a value.
func numbers(v gorgonia.Value) ([]float64, error) {
	m, err := values.Bytes(v)
	if err != nil {
		return nil, err
	}
	switch dt, _ := values.Dtype(v.Dtype()); dt {
	case kernels.Float32:
		return floats(kernels.Elements[float32](m)), nil
	case kernels.Float64:
		return slices.Clone(kernels.Elements[float64](m)), nil
	case kernels.Uint8:
		return floats(m), nil
	case kernels.Int32:
		return floats(kernels.Elements[int32](m)), nil
	case kernels.Int64:
		return floats(kernels.Elements[int64](m)), nil
	case kernels.Int:
		return floats(kernels.Elements[int](m)), nil
	}
	return nil, fmt.Errorf("got elements of %v, want numbers", v.Dtype())
}

func floats[T float32 | uint8 | int32 | int64 | int](list []T) []float64 {
	out := make([]float64, len(list))
	for i, x := range list {
		out[i] = float64(x)
	}
	return out
}

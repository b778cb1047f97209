// Attention computes softmax attention in five steps, from two matrix products with a softmax between them to the kernel that the op runs on an H100.
//
//	go run ./examples/11-attention
//	go run ./examples/11-attention -html out.html
//
// It reads like a notebook: this file takes the steps, online.go explains the softmax of one pass. Without a GPU it runs the kernels' Go bodies on less and shows the times recorded on a
// GPU.
package main

import (
	"embed"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/versions"
)

//go:embed *.go recorded.json
var files embed.FS

const title = "Attention: from a matrix of scores to none"

func main() { notebook.Main(title, files, run) }

func run(p *notebook.Page) {
	l := begin(p)
	for i, s := range steps {
		p.Heading(fmt.Sprintf("Step %d: %s", i+1, versions.Docs("Attention")[i].Name))
		p.Text("%s", s.before)
		if s.example != nil {
			s.example(p)
		}
		if s.functions != nil {
			p.Source(s.file, s.functions...)
		}
		l.step(i + 1)
		p.Text("%s", s.after)
	}
	l.compare()
}

const (
	width = 2048 // elements of a token in all heads
	dim   = 128  // of a head
)

// lengths are the sequences that are timed: as many of a length as make `tokens` tokens.
var lengths = []int{512, 1024, 2048, 4096, 8192}

// main is the length that the text speaks of.
const mainLength = 4096

// A ladder is the page, its operands and the times of the versions in us, by version and length; causal ones have a negative length.
type ladder struct {
	*notebook.Page
	operands [3][]uint16 // q, k and v in BF16
	us       map[[2]int]float64
}

func (l *ladder) tokens() int { return l.Timed(16384, 128) }

// problem is attention of sequences of a length.
func (l *ladder) problem(tokens, length int, causal bool) attention.Problem {
	length = min(length, tokens)
	heads := int64(l.Timed(width, 2*dim) / dim)
	return attention.Problem{Dtype: expr.BF16, Batch: int64(tokens / length), Heads: heads, KeyHeads: heads, Queries: int64(length), Keys: int64(length), Dim: dim, Scale: 1 / math.Sqrt(dim), Causal: causal}
}

func begin(p *notebook.Page) *ladder {
	l := &ladder{Page: p, us: map[[2]int]float64{}}
	state := uint32(1)
	for i := range l.operands {
		l.operands[i] = make([]uint16, l.Size(16384, 512, 128)*width)
		for k := range l.operands[i] {
			state = state*1664525 + 1013904223
			l.operands[i][k] = expr.ToHalf(expr.BF16, float32(int32(state)>>20)/2048)
		}
	}
	p.Heading("The task")
	p.Text(`A transformer's layer of attention has for each token a query, a key and a value, rows of d numbers. A query's result is a mean of all values, weighted by the softmax of its products
		with all keys: out[i] = Σ_j w[i, j] v[j], where row i of w is the softmax of q[i] · k[j] / sqrt(d) over j. For T tokens these are two products of matrices with 2 T^2 d operations each,
		and between them T^2 exponentials. q, k, v and out are small: 4 T d numbers. The scores are not: for T = 8192 each head has 67 million. The steps are about where the scores
		are.`)
	p.Text(`All versions take q, k and v in BF16 and add up in float32. Times are of 16 384 tokens in sequences of T, in 16 heads of d = %d: longer sequences are fewer, and have
		more operations for a token.`, dim)
	return l
}

// inputs returns the operands of a problem.
func (l *ladder) inputs(a attention.Problem) (in [][]byte) {
	for _, x := range l.operands {
		in = append(in, kernels.Bytes(x[:a.Batch*a.Heads*a.Queries*a.Dim]))
	}
	return in
}

// check compares some rows of a result with the definition in float64.
func (l *ladder) check(a attention.Problem, out []byte) error {
	number := func(x []uint16, i int64) float64 { return float64(expr.FromHalf(expr.BF16, x[i])) }
	got := kernels.Elements[uint16](out)
	rows := a.Batch * a.Heads * a.Queries
	for n := range int64(20) {
		row := n * 104729 % rows
		seen, first := a.Keys, row/a.Queries*a.Keys
		if a.Causal {
			seen = row%a.Queries + 1
		}
		weights, total := make([]float64, seen), 0.0
		for j := range weights {
			for c := range a.Dim {
				weights[j] += number(l.operands[0], row*dim+c) * number(l.operands[1], (first+int64(j))*dim+c) * a.Scale
			}
			weights[j] = math.Exp(weights[j])
			total += weights[j]
		}
		for c := range a.Dim {
			want, size := 0.0, 0.0
			for j, w := range weights {
				v := number(l.operands[2], (first+int64(j))*dim+c)
				want, size = want+w/total*v, size+w/total*math.Abs(v)
			}
			if g := number(got, row*dim+c); !(math.Abs(g-want) <= 0x1p-6*size) {
				return fmt.Errorf("element %d of row %d of %+v is %v, want %v", c, row, a, g, want)
			}
		}
	}
	return nil
}

// time measures a version on the GPU in us.
func (l *ladder) time(version, length int, causal bool) float64 {
	key := [2]int{version, length}
	if causal {
		key[1] = -length
	}
	a := l.problem(l.tokens(), length, causal)
	l.us[key] = l.Measure(fmt.Sprintf("version %d, T = %d, causal %v", version, length, causal), "us", func() float64 {
		return l.MeanTime(notebook.Must(versions.Attention(l.Target(), version, a)), l.inputs(a), 7, func(out []byte) error { return l.check(a, out) })
	}).Value
	return l.us[key]
}

// step runs a version here, checks it, and times it.
func (l *ladder) step(version int) {
	a := l.problem(l.Size(2048, 256, 128), l.Size(2048, 256, 128), version > 1)
	plan := notebook.Must(versions.Attention(l.Target(), version, a))
	notebook.Check(l.check(a, l.Output(plan, l.inputs(a))))
	for _, length := range lengths {
		l.time(version, length, false)
	}
	if version > 1 {
		l.time(version, mainLength, true)
	}
	gain := ""
	if version > 1 {
		gain = fmt.Sprintf(", %s times as fast as the step before", figure.Number(l.us[[2]int{version - 1, mainLength}]/l.us[[2]int{version, mainLength}]))
	}
	l.Text("T = %d: %v, %s TFLOP/s%s.", mainLength, notebook.In(l.us[[2]int{version, mainLength}], "us"), figure.Number(l.rate(version, mainLength)), gain)
}

// rate is the rate of a version in TFLOP/s.
func (l *ladder) rate(version, length int) float64 {
	n := float64(max(length, -length))
	operations := 4 * 16384 * n * width
	if length < 0 {
		operations /= 2
	}
	return operations / l.us[[2]int{version, length}] / 1e6
}

func (l *ladder) compare() {
	l.Heading("All steps side by side")
	t := figure.Table{Caption: "TFLOP/s of attention of 16 384 tokens", Header: []string{"version"}}
	lines := figure.Bars{Title: "Attention by the length of the sequences", Label: "TFLOP/s", Log: true}
	colours := []figure.BarSeries{{Colour: figure.Blue}, {Colour: figure.Amber}}
	for k, length := range []int{512, 8192} {
		colours[k].Name = fmt.Sprintf("T = %d", length)
	}
	lines.Series = colours
	for _, n := range lengths {
		t.Header = append(t.Header, fmt.Sprintf("T = %d", n))
	}
	t.Header = append(t.Header, fmt.Sprintf("causal, T = %d", mainLength))
	for i, doc := range versions.Docs("Attention") {
		row := []any{fmt.Sprintf("%d: %s", i+1, doc.Name)}
		for _, n := range lengths {
			row = append(row, l.rate(i+1, n))
		}
		if i > 0 {
			row = append(row, l.rate(i+1, -mainLength))
		}
		t.Add(row...)
		lines.Add(fmt.Sprintf("%d: %s", i+1, doc.Name), l.rate(i+1, 512), l.rate(i+1, 8192))
	}
	l.Table(t)
	l.Figure("steps", "The rate of each version on short and on long sequences; longer is better.", lines)
	l.Text(`A causal query sees the keys up to its own, and blocks leave out the keys that none of their queries sees: half the operations, which the table counts, in a little more than half the
		time. ` + "`ops.Attention`" + ` is step 5 on an H100, step 4 on GPUs since 2020 and step 3 elsewhere, and its gradients are computed in the same ways.`)
}

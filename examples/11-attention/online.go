package main

import (
	"math"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
)

// A step is a version: what is said before its source, the functions that are shown, and what is said after its time.
type step struct {
	before    string
	example   func(p *notebook.Page)
	file      string
	functions []string
	after     string
}

var steps = []step{
	{before: `The definition: a product, a softmax of rows and a product, each a kernel that is fast by itself. Scores are written to memory and read, and so are weights: 12 bytes for each pair of
		a query and a key, for 4 d operations.`,
		after: `The products run on the tensor cores, so that memory decides: at T = 8192 scores and weights of all heads are 12.9 GB.`},
	{before: `Scores can stay on the chip. A block takes 64 queries of a head and goes through the keys, 64 at a time: a tile of 64 x 64 scores lies in registers, 4 x 4 a thread. But a weight needs
		the largest score of its row, which is known at the end. So there are two passes: the first finds the largest score, the second computes the scores again, and then the weights, their sum,
		and the weighted sum of values. Tiles of weights go through shared memory, since a thread needs the weights of whole rows.`,
		file: "versions/attention.cu", functions: []string{"attention_tiled_bf16"},
		after: `Memory no longer matters, but this version computes 3 products instead of 2, and all by fused multiply-adds: the unfused version's tensor cores do a dozen times as many operations.`},
	{before: `One pass is enough. Whoever goes through the scores keeps the largest so far, and sums of exponentials relative to it. Where a larger score comes, the sums are multiplied by the
		exponential of the difference, and go on.`, example: online,
		file: "attention.cu", functions: []string{"attention"},
		after: `Two products instead of three. What is left is the limit of fused multiply-adds.`},
	{before: `The products of tiles belong on the tensor cores. A warp has 16 queries. Its accumulators of a product of 16 x 8 scores lie in the registers just as the first operand of the next product
		wants them, so that weights, rounded to BF16, never leave the registers. Keys and values come by cp.async into two stages, while others are multiplied.`,
		file: "attention_mma.cuh", functions: []string{"attend"},
		after: `mma.sync reaches about two thirds of what the tensor cores of an H100 can do, and a warp that computes exponentials does not multiply.`},
	{before: `On compute capability 9.0 a warpgroup of 128 threads starts products of 64 x 128 scores that read keys from shared memory themselves, and goes on while they run (wgmma). One warp
		does nothing but copy tiles by TMA. Two warpgroups multiply, 64 queries each, and take turns: while one computes exponentials, the other has the tensor cores. And in one warpgroup
		the product of the last weights with values runs beside the exponentials of the next scores.`,
		file: "attention_hopper.cu", functions: []string{"Attend"},
		after: `An exponential costs as much as 256 operations of the tensor cores, and here there is one for every 4 d = 512: most of them are hidden.`},
}

// softmaxMean returns the mean of values weighted by the softmax of scores, in one pass.
func softmaxMean(scores, values []float64) float64 {
	most, total, sum := math.Inf(-1), 0.0, 0.0
	for i, s := range scores {
		if s > most {
			factor := math.Exp(most - s) // 0 at first
			total, sum, most = total*factor, sum*factor, s
		}
		w := math.Exp(s - most)
		total += w
		sum += w * values[i]
	}
	return sum / total
}

// online shows softmaxMean with scores whose exponentials overflow.
func online(p *notebook.Page) {
	p.GoFunction("online.go", "softmaxMean")
	scores, values := []float64{-3, 800, 802, 1}, []float64{5, 1, 2, 7}
	plain := (math.Exp(scores[1]) + 2*math.Exp(scores[2])) / (math.Exp(scores[1]) + math.Exp(scores[2]))
	p.Text("For scores %v and values %v it returns %s, where exponentials without the largest score give %v.", scores, values, figure.Number(softmaxMean(scores, values)), plain)
}

package graphspec

import (
	"cmp"
	"math"
	"slices"
)

// Decisions are those that a row makes where derivatives jump: whether a rectifier lets
// a number through, and which number of a window is the greatest. One whose numbers differ by
// less than they may be off by rounding is in doubt: it can go either way in a right
// result, and the derivatives with it.
type Decisions struct {
	turned []int // those that are to go the other way, in the order in which they are made
	doubts []int // those in doubt
	made   int
}

// turns counts a decision between numbers that differ by margin, and reports whether it
// is to go the other way than they say.
func (d *Decisions) turns(margin, doubt float64) bool {
	i := d.made
	d.made++
	if margin <= doubt {
		d.doubts = append(d.doubts, i)
	}
	return slices.Contains(d.turned, i)
}

// doubt returns how far apart two numbers that float32 may put in either order are at most, of
// values that are sums of so many products. The error of such a sum, added up term by term, is
// 0.3 times 2^-24 times the square root of the number of products, times the values' size
// (root mean square of 4000 sums); those of the numbers that it is made of come to it. This is
// 16 in place of 0.3, for sums in other orders and of several layers.
func doubt(values []float64, products int) float64 {
	return 0x1p-20 * math.Sqrt(float64(products)*dot(values, values)/float64(len(values)))
}

// doubtful is a decision of a row.
type doubtful struct{ row, decision int }

// settle takes the decisions in doubt as the outputs suggest: each goes the other way
// if the sums come nearer to them, again and again until none does. It changes the sums.
func (c Case) settle(s *samples, got [][]float32, all part) {
	slices.SortFunc(all.doubts, func(a, b doubtful) int { return cmp.Or(a.row-b.row, a.decision-b.decision) })
	turned := map[int][]int{} // by row
	for again := true; again; {
		again = false
		for rest := all.doubts; len(rest) > 0; {
			row := rest[0].row
			s.read(row)
			kept := c.run(s, Decisions{turned: turned[row]})
			for ; len(rest) > 0 && rest[0].row == row; rest = rest[1:] {
				with := toggled(turned[row], rest[0].decision)
				if other := c.run(s, Decisions{turned: with}); c.nearer(got, all, kept, other) {
					replace(all.sum, kept, other)
					kept, turned[row], again = other, with, true
				}
			}
		}
	}
}

// toggled returns a list with a number added, or without it if it is there.
func toggled(list []int, n int) []int {
	if i := slices.Index(list, n); i >= 0 {
		return slices.Delete(slices.Clone(list), i, i+1)
	}
	return append(slices.Clip(list), n)
}

// nearer reports whether outputs that are sums are nearer to what was got, by more than
// rounding, with a row's part other in place of one.
func (c Case) nearer(got [][]float32, all part, one, other [][]float64) bool {
	change := 0.0 // of the squares of errors
	for i, o := range c.Outputs {
		if !o.Sum {
			continue
		}
		var before, after, scale float64
		for k, g := range got[i] {
			d := all.sum[i][k] - float64(g)
			e := d + other[i][k] - one[i][k]
			before, after, scale = before+d*d, after+e*e, scale+all.magnitude[i][k]*all.magnitude[i][k]
		}
		if scale > 0 {
			change += (after - before) / scale
		}
	}
	return change < -1e-4*c.Tolerance*c.Tolerance
}

// replace puts a row's part in sums in the place of another.
func replace(total, one, other [][]float64) {
	for i := range total {
		for k := range total[i] {
			total[i][k] += other[i][k] - one[i][k]
		}
	}
}

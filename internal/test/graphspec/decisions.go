package graphspec

import (
	"cmp"
	"math"
	"slices"
)

// Decisions are the choices of a row at points where derivatives jump: whether a rectifier lets a
// number through, and which number of a window is the greatest. One between numbers that differ by
// less than rounding is in doubt: in a correct result it can go either way, and the derivatives
// with it.
type Decisions struct {
	turned []int // those to be reversed, in the order in which they are made
	doubts []int // those in doubt
	made   int
}

// turns counts a decision between numbers that differ by margin, and reports whether it is to be
// reversed.
func (d *Decisions) turns(margin, doubt float64) bool {
	i := d.made
	d.made++
	if margin <= doubt {
		d.doubts = append(d.doubts, i)
	}
	return slices.Contains(d.turned, i)
}

// doubt returns the largest difference at which float32 may order two numbers either way, if the
// numbers are sums of that many products. The error of such a sum, added up term by term, is 0.3
// times 2^-24 times the square root of the number of products, times the magnitude of the values
// (root mean square of 4000 sums), plus the errors of the terms themselves. The factor here is 16
// instead of 0.3, for sums in other orders and over several layers.
func doubt(values []float64, products int) float64 {
	return 0x1p-20 * math.Sqrt(float64(products)*dot(values, values)/float64(len(values)))
}

// doubtful is a decision of a row.
type doubtful struct{ row, decision int }

// settle takes the decisions in doubt as the outputs suggest: it reverses each that brings the sums
// nearer to them, until none does. It changes the sums.
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

// nearer reports whether the sums are nearer to the outputs, by more than rounding, with a row's
// part replaced by other.
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

// replace exchanges a row's part in sums.
func replace(total, one, other [][]float64) {
	for i := range total {
		for k := range total[i] {
			total[i][k] += other[i][k] - one[i][k]
		}
	}
}

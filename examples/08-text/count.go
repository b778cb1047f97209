package main

import (
	"math"

	"github.com/stheno-ml/stheno/internal/figure"
)

// counts are how often each letter followed a few others.
type counts struct {
	of      map[string][]int32 // by the letters before it
	uniform float64            // the probability of a letter of which nothing is known
}

// newCounts counts the letters that follow up to `most` letters.
func newCounts(read []int, letters, most int) *counts {
	c := &counts{of: map[string][]int32{}, uniform: 1 / float64(letters)}
	key := keys(read)
	for i, next := range read {
		for n := 0; n <= min(most, i); n++ {
			k := key[i-n : i]
			if c.of[k] == nil {
				c.of[k] = make([]int32, letters)
			}
			c.of[k][next]++
		}
	}
	return c
}

// keys is a text as a string, a byte a letter, whose parts are keys of counts.
func keys(numbers []int) string {
	b := make([]byte, len(numbers))
	for i, n := range numbers {
		b[i] = byte(n)
	}
	return string(b)
}

// probability of a letter after others: how often it followed the last n of them, and, as much as the
// number of different letters that did so, the guess from n - 1 of them (Witten and Bell, 1991).
func (c *counts) probability(before string, n, next int) float64 {
	if n < 0 {
		return c.uniform
	}
	shorter := c.probability(before, n-1, next)
	followed := c.of[before[len(before)-n:]]
	if followed == nil {
		return shorter
	}
	all, kinds := 0, 0
	for _, count := range followed {
		all += int(count)
		if count > 0 {
			kinds++
		}
	}
	return (float64(followed[next]) + float64(kinds)*shorter) / float64(all+kinds)
}

// bits is the mean cost of the letters of a text, each guessed from n before it.
func (c *counts) bits(held []int, n int) float64 {
	key, sum := keys(held), 0.0
	for i, next := range held {
		sum -= math.Log2(c.probability(key[:i], min(n, i), next))
	}
	return sum / float64(len(held))
}

// kept is how many counts above 0 there are with n letters before.
func (c *counts) kept(n int) (sum int) {
	for before, followed := range c.of {
		for _, count := range followed {
			if len(before) == n && count > 0 {
				sum++
			}
		}
	}
	return sum
}

func uniform(s *story) float64 { return math.Log2(float64(len(s.text.letters))) }

// choices returns how many equally likely letters cost that many bits: the perplexity.
func choices(bits float64) string { return figure.Number(math.Exp2(bits)) }

// counting counts letters: the network has to beat it.
func counting(s *story) {
	s.Heading("Counting")
	s.Text(`How few bits can it be without a network? Counting how often each letter comes is better than taking all for equally likely, and counting what comes after an e, or
		after th, is better still. The more letters before the next one we look at, the less often we have seen them, so their counts are mixed with those of fewer letters.`)
	s.GoFunction("count.go", "probability")
	const most = 5
	c := newCounts(s.text.read, len(s.text.letters), most)
	t := figure.Table{Caption: "What is held out, guessed by counting", Header: []string{"letters before", "bits a letter", "as many equally likely letters", "numbers kept"}}
	t.Add("nothing known", bits(uniform(s)), choices(uniform(s)), 0)
	for n := range most + 1 {
		b := c.bits(s.text.held, n)
		s.counts = append(s.counts, b)
		t.Add(n, bits(b), choices(b), c.kept(n))
	}
	s.Table(t)
	s.Text("Counts know what has been seen, letter for letter, and nothing else. They do not know what is further away: which word began, whether a bracket is open, how long the line is.")
}

package train

import "math"

// Cosine returns a schedule for [LearnRate]: the rate grows from 0 to top in the first
// warmup steps, and falls to 0 along half a cosine until step total.
func Cosine(top float64, warmup, total int) func(step int) float64 {
	return warmUp(top, warmup, total, func(part float64) float64 { return (1 + math.Cos(math.Pi*part)) / 2 })
}

// Linear returns a schedule for [LearnRate]: the rate grows from 0 to top in the first warmup steps, and falls linearly to 0
// until step total.
func Linear(top float64, warmup, total int) func(step int) float64 {
	return warmUp(top, warmup, total, func(part float64) float64 { return 1 - part })
}

// warmUp returns a schedule that grows to top, then multiplies top by a function of the part of the other steps that is done.
func warmUp(top float64, warmup, total int, factor func(part float64) float64) func(step int) float64 {
	return func(step int) float64 {
		if step < warmup {
			return top * float64(step+1) / float64(warmup)
		}
		done := float64(step-warmup) / float64(max(total-warmup, 1))
		return top * factor(min(done, 1))
	}
}

// StepDecay returns a schedule for [LearnRate]: top, multiplied by factor after every n-th step. With n below 1 it returns NaN,
// which is an error of Run.
func StepDecay(top, factor float64, n int) func(step int) float64 {
	return func(step int) float64 {
		if n < 1 {
			return math.NaN()
		}
		return top * math.Pow(factor, float64(step/n))
	}
}

package testutil

import (
	"maps"
	"slices"
)

// OverBest returns the time of the chosen candidate over the best one's, of times by candidate: 3 for one without a time, since records leave out candidates that are
// slower than three times the best.
func OverBest(us map[string]float64, chosen string) float64 {
	if own, ok := us[chosen]; ok {
		return own / slices.Min(slices.Collect(maps.Values(us)))
	}
	return 3
}

package testutil

import (
	"flag"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawn returns the numbers that a property draws.
func drawn(t *testing.T) (list []int) {
	t.Run("draw", func(t *testing.T) {
		CheckProperty(t, func(t *rapid.T) { list = append(list, rapid.Int().Draw(t, "number")) })
	})
	return list
}

func TestCheckProperty(t *testing.T) {
	if os.Getenv("STHENO_SEED") != "" || flag.Lookup("rapid.seed").Value.String() != "0" {
		t.Skip("SKIPPED, NOT TESTED: the seed is set from outside")
	}
	t.Cleanup(func() { Do(t, flag.Set("rapid.seed", "0")) })
	if slices.Equal(drawn(t), drawn(t)) {
		t.Error("without a seed, equal numbers were drawn twice")
	}
	if one, other := Seed(t), Seed(t); one == other {
		t.Error("without a seed, Seed returned one number twice")
	}
	t.Setenv("STHENO_SEED", "7")
	if got := Seed(t); got != 7 {
		t.Errorf("Seed returned %d, want STHENO_SEED=7", got)
	}
	Do(t, fromEnvironment())
	if !slices.Equal(drawn(t), drawn(t)) {
		t.Error("with a seed, other numbers were drawn the second time")
	}
	Do(t, flag.Set("rapid.seed", "0"))
	t.Setenv("STHENO_SEED", "seven")
	if fromEnvironment() == nil {
		t.Error("STHENO_SEED=seven is accepted")
	}
}

package testutil

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// CheckProperty checks a property on drawn cases. They differ from run to run, unless STHENO_SEED or
// -rapid.seed is set: the project's own checks set it, so that a failure there is due to a change.
func CheckProperty(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	Do(t, seed())
	rapid.Check(t, property)
}

// Seed returns STHENO_SEED, or another number each time, and logs it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if wanted := os.Getenv("STHENO_SEED"); wanted != "" {
		var err error
		if seed, err = strconv.ParseUint(wanted, 10, 64); err != nil {
			t.Fatalf("STHENO_SEED=%s, want a number: %v", wanted, err)
		}
	}
	t.Logf("STHENO_SEED=%d", seed)
	return seed
}

// Random returns random numbers of [Seed].
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}

// Checks is the number of cases that are drawn for a property, unless -rapid.checks says otherwise. With -short rapid draws 20.
const Checks = 60

var seed = sync.OnceValue(fromEnvironment)

// fromEnvironment takes the seed from the environment.
func fromEnvironment() error {
	given := testing.Short()
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		if err := flag.Set("rapid.checks", strconv.Itoa(Checks)); err != nil {
			return err
		}
	}
	wanted := os.Getenv("STHENO_SEED")
	if wanted == "" || flag.Lookup("rapid.seed").Value.String() != "0" {
		return nil
	}
	if err := flag.Set("rapid.seed", wanted); err != nil {
		return fmt.Errorf("STHENO_SEED=%s, want a number: %w", wanted, err)
	}
	return nil
}

package must

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Hold checks a property on drawn cases. They are others each time, but the same
// ones where STHENO_SEED is set to a number, unless -rapid.seed says otherwise: a
// change that fails the project's checks then is what made them fail.
func Hold(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	Do(t, seed())
	rapid.Check(t, property)
}

var seed = sync.OnceValue(fromEnvironment)

// fromEnvironment sets the seed that the environment asks for.
func fromEnvironment() error {
	wanted := os.Getenv("STHENO_SEED")
	if wanted == "" || flag.Lookup("rapid.seed").Value.String() != "0" {
		return nil
	}
	if err := flag.Set("rapid.seed", wanted); err != nil {
		return fmt.Errorf("STHENO_SEED=%s, want a number: %w", wanted, err)
	}
	return nil
}

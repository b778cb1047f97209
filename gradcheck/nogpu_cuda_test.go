//go:build cuda

package gradcheck_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// With the tag cuda Gorgonia's own ops run on a GPU alone, and so do these
// tests of graphs that have some.
func TestMain(m *testing.M) {
	if _, err := cudaops.Devices(); err != nil && !testutil.Required("GPU") {
		fmt.Println("SKIP: Gorgonia's machine with the tag cuda needs a GPU:", err)
		return
	}
	os.Exit(m.Run())
}

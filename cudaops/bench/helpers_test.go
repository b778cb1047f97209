package bench

import (
	"os"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/kernels"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ok[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// device0 returns the properties of device 0; without one the test is skipped, or
// fails if STHENO_REQUIRE_GPU=1 says that there is one.
func device0(t *testing.T) kernels.Device {
	t.Helper()
	devices, err := cudaops.Devices()
	if err != nil && os.Getenv("STHENO_REQUIRE_GPU") == "1" {
		t.Fatalf("STHENO_REQUIRE_GPU=1, but: %v", err)
	}
	if err != nil {
		t.Skipf("SKIPPED, NOT TESTED: %v", err)
	}
	return devices[0].Device
}

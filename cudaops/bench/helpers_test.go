package bench

import (
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// device0 returns the properties of device 0; without one the test is skipped, or
// fails if STHENO_REQUIRE_GPU=1.
func device0(t testing.TB) kernels.Device {
	t.Helper()
	devices, err := cudaops.Devices()
	testutil.SkipUnless(t, "GPU", err)
	return devices[0].Device
}

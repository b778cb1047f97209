package hostmem

import (
	"math"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, bytes := range []int64{0, 1, little, 2 * little} {
		if err := Check(bytes); err != nil {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
	for _, bytes := range []int64{-1, Most + 1, math.MinInt64, math.MaxInt64} {
		if err := Check(bytes); err == nil || !strings.Contains(err.Error(), "want 0 to") {
			t.Errorf("%d bytes: got error %v", bytes, err)
		}
	}
	if _, known := available(); known {
		if err := Check(Most); err == nil || !strings.Contains(err.Error(), "131072.0 GiB") || !strings.Contains(err.Error(), "available") {
			t.Errorf("%d bytes: got error %v", int64(Most), err)
		}
	}
}

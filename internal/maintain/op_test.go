package maintain

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// A wrong output of a drawn case is an error.
func TestDrawnCaseIsChecked(t *testing.T) {
	drawn := testutil.Get[[]opspec.Drawn](t)(opspec.Draw(9, 3, opspec.Limits{Least: 1e3, Most: 1e5, Flops: 1e6}, opspec.All()[:1]))
	first := slices.IndexFunc(drawn, func(d opspec.Drawn) bool { return d.Op == "Add" && d.Dtype == "f32" })
	d := Drawn(drawn)[first].(Op)
	block := NewBlock(1, 100_003)
	list, err := d.MeasureOnHost(block, 1)
	if err != nil || len(list) != 2 || !(list[0].Us > 0) || !(list[1].Us > 0) || list[1].Kind != records.Peer || list[0].Note != "all" {
		t.Errorf("got %+v, %v, want two times and a checked result", list, err)
	}
	d.Spec.Tolerance = 0 // nothing is allowed, and float32 rounds
	if _, err := d.MeasureOnHost(block, 1); err == nil || !strings.Contains(err.Error(), "wrong result") {
		t.Errorf("got %v where no rounding is allowed, want an error", err)
	}
}

// Calls too short for the clock are repeated.
func TestBestOf(t *testing.T) {
	calls := 0
	if best := bestOf(3, func() { calls++ }); calls < 100 || best > time.Millisecond {
		t.Errorf("an empty call: %d calls, %v each", calls, best)
	}
	calls = 0
	if best := bestOf(30, func() { calls++; time.Sleep(20 * time.Millisecond) }); calls > 5 || best < 20*time.Millisecond {
		t.Errorf("a call of 20 ms: %d calls, %v, want those that fit into 50 ms", calls, best)
	}
}

package window

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// Zero values and nils are errors, and nothing panics.
func TestSurvives(t *testing.T) {
	testutil.SurviveWhole(t, map[string]any{
		"AveragePool": AveragePool, "AveragePoolDiff": AveragePoolDiff, "MaxPool": MaxPool, "MaxPoolDiff": MaxPoolDiff, "Col2Im": Col2Im, "Im2Col": Im2Col,
		"WindowSum": nil, // returns no error: ops have checked the shapes of plans
	}, -1, int64(-1), kernels.HostDevice(), WindowAxis{}, WindowMode(0), Windows{}, MaxPooling{}, MaxPooling{ReLU: true, Images: 1 << 62, Channels: 8, ChannelsLast: [2]bool{true}})
}

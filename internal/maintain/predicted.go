package maintain

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

// unmeasured are GPUs without records, by the vendor's data.
var unmeasured = []kernels.Device{
	{Name: "A100 40 GB", Major: 8, SMs: 108, SharedOptin: 163 << 10, L2: 40 << 20, Bandwidth: 1.555e12},
	{Name: "L40S", Major: 8, Minor: 9, SMs: 142, SharedOptin: 99 << 10, L2: 96 << 20, Bandwidth: 864e9},
	{Name: "RTX 4090", Major: 8, Minor: 9, SMs: 128, SharedOptin: 99 << 10, L2: 72 << 20, Bandwidth: 1008e9},
	{Name: "B200", Major: 10, SMs: 148, SharedOptin: 227 << 10, L2: 126 << 20, Bandwidth: 8e12},
}

// predictedSums is a table of the predicted times of sums of float32 on GPUs that were not measured, and of the times that their memory takes at its peak.
func predictedSums() string {
	lines := [][]string{{"Sum"}}
	for _, dev := range unmeasured {
		lines[0] = append(lines[0], dev.Name, "memory alone")
	}
	for _, shape := range [][3]int64{{1, 1e6, 1}, {1, 1000, 1000}, {1, 1 << 28, 1}, {1, 1 << 14, 1 << 14}, {1 << 14, 1 << 14, 1}} {
		name := fmt.Sprintf("%d x %d over 0", shape[1], shape[2])
		if shape[0] > 1 {
			name = fmt.Sprintf("%d x %d over 1", shape[0], shape[1])
		}
		line := []string{name}
		for _, dev := range unmeasured {
			_, us, plans := reduce.Candidates(dev, kernels.Float32, shape[0], shape[1], shape[2])
			line = append(line, records.Micros(slices.Min(us)), records.Micros(float64(plans[0].Bytes())/dev.Bandwidth*1e6))
		}
		lines = append(lines, line)
	}
	return records.Grid("lr", lines)
}

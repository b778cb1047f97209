package records

import (
	"fmt"
	"math"
	"strings"
)

// LossCurves is the table of the losses of trainings: a line for some consecutive steps, a column for each way to compute them.
func LossCurves(f *File, _ []Key) string {
	var windows, columns []string
	mean := map[string]map[string]float64{} // by column and window
	for _, r := range f.Of(Loss) {
		column := strings.TrimPrefix(r.By+", ", ", ") + r.Dtype
		if mean[column] == nil {
			mean[column] = map[string]float64{}
			columns = append(columns, column)
		}
		if len(columns) == 1 {
			windows = append(windows, r.Case)
		}
		mean[column][r.Case] = r.Values["loss"]
	}
	if len(columns) == 0 {
		return ""
	}
	lines := [][]string{append([]string{"Steps"}, columns...)}
	farthest := []string{"farthest from float32"}
	for _, c := range columns {
		far := 0.0
		for _, w := range windows {
			full := mean[LossesIn][w]
			far = max(far, math.Abs(mean[c][w]-full)/full)
		}
		farthest = append(farthest, fmt.Sprintf("%.3f %%", 100*far))
	}
	for _, w := range windows {
		cells := []string{w}
		for _, c := range columns {
			cells = append(cells, fmt.Sprintf("%.5f", mean[c][w]))
		}
		lines = append(lines, cells)
	}
	return f.heading(f.Head()) + ".\n\n" + f.Since() + Grid("lr", append(lines, farthest))
}

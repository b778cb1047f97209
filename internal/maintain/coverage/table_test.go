package coverage

import (
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"gorgonia.org/tensor"
)

// table returns a Markdown table of rows, in which equal rows are merged.
func table(rows []Row) string {
	lines := [][]string{{"Gorgonia's", "Forward", "Backward", "One step with maps", "On the device of"}}
	for _, r := range rows {
		rest := []string{strings.Join(r.Forward, ", "), string(r.Backward), r.fused(), types(r.Types)}
		at := slices.IndexFunc(lines, func(line []string) bool { return slices.Equal(line[1:], rest) })
		if at < 0 {
			at, lines = len(lines), append(lines, append([]string{""}, rest...))
		}
		lines[at][0] += names(r) + " "
	}
	return records.Grid("l", lines)
}

func names(r Row) string { return "`" + strings.Join(r.Names, "` `") + "`" }

func (r Row) fused() string {
	switch {
	case r.Before && r.After:
		return "before and after"
	case r.Before:
		return "before"
	case r.After:
		return "after"
	}
	return ""
}

func types(list []tensor.Dtype) string {
	var names []string
	for _, dt := range list {
		names = append(names, dt.String())
	}
	return strings.Join(names, ", ")
}

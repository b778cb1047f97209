package coverage

import (
	"fmt"
	"strings"

	"gorgonia.org/tensor"
)

// Table returns a Markdown table of rows, in which equal rows are merged.
func Table(rows []Row) string {
	var lines []string // without the names
	of := map[string][]string{}
	for _, r := range rows {
		line := fmt.Sprintf("%s | %s | %s | %s |\n", strings.Join(r.Forward, ", "), r.Backward, r.fused(), types(r.Types))
		if of[line] == nil {
			lines = append(lines, line)
		}
		of[line] = append(of[line], names(r))
	}
	var b strings.Builder
	b.WriteString("| Gorgonia's | Forward | Backward | One step with maps | On the device of |\n|---|---|---|---|---|\n")
	for _, line := range lines {
		fmt.Fprintf(&b, "| %s | %s", strings.Join(of[line], " "), line)
	}
	return b.String()
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

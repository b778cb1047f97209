package results

import (
	"cmp"
	"fmt"
	"strings"
)

// UpdatePrecision returns the text of docs/precision.md with tables of the training steps that are timed in several
// precisions between the markers <!-- precision:begin --> and <!-- precision:end -->.
func UpdatePrecision(text string, files []*File, cases []Key) (string, error) {
	tables := make([]string, len(files))
	for i, f := range files {
		tables[i] = f.precisionTable(cases)
	}
	return Splice(text, "precision", cmp.Or(strings.Join(tables, "\n"), "Not measured yet.\n"))
}

// precisionTable has a line for each step, with its times and the errors of its gradients in each precision.
func (f *File) precisionTable(cases []Key) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**, driver %s (CUDA %s), %s.\n\n", f.GPU, f.Driver, f.CUDA, f.Date)
	b.WriteString(f.Since())
	b.WriteString("| Step | Size | Time in float32 | TF32 | BF16 | Gradients off in float32 | TF32 | BF16 |\n|---|---|--:|--:|--:|--:|--:|--:|\n")
	for _, key := range cases {
		name, reduced := strings.CutSuffix(key.Op, ", BF16")
		if !reduced {
			continue
		}
		var times, errors []string
		for _, by := range []string{"", ", TF32", ", BF16"} {
			time, off := "not measured", ""
			if r, ok := f.Row(Key{name + by, key.Case, key.Dtype}); ok && r.Graph != nil {
				time = r.Time()
				if r.Graph.Off > 0 {
					off = fmt.Sprintf("%.1e", r.Graph.Off)
				}
			}
			times, errors = append(times, time), append(errors, off)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(name), cell(key.Case), strings.Join(times, " | "), strings.Join(errors, " | "))
	}
	return b.String()
}

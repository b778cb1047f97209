package results

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/internal/accuracy"
)

// Accuracy holds the errors of a product as plans compute it, by FMA, and by another library.
type Accuracy struct {
	Ours accuracy.Error  `json:"ours"`
	FMA  accuracy.Error  `json:"fma"`
	Peer *accuracy.Error `json:"peer,omitempty"`
	By   string          `json:"by,omitempty"`
}

// SpecialTimes is the op of rows of times with special operands.
const SpecialTimes = "MatMul with special operands"

// UpdateAccuracy returns the text of docs/precision.md with tables of the errors of products, and of times with special operands,
// between the markers <!-- accuracy:begin --> and <!-- accuracy:end -->.
func UpdateAccuracy(text string, files []*File, _ []Key) (string, error) {
	tables := make([]string, len(files))
	for i, f := range files {
		tables[i] = f.accuracyTables()
	}
	return Splice(text, "accuracy", cmp.Or(strings.Join(tables, "\n"), "Not measured yet.\n"))
}

// accuracyTables are those of a GPU.
func (f *File) accuracyTables() string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**, driver %s (CUDA %s), %s", f.GPU, f.Driver, f.CUDA, f.Date)
	for _, r := range f.Rows {
		if r.Accuracy != nil && r.Accuracy.By != "" {
			fmt.Fprintf(&b, "; beside %s", r.Accuracy.By)
			break
		}
	}
	b.WriteString(".\n\n" + f.Since() + "| Operands | m x k x n | Stheno | by FMA alone | cuBLAS |\n|---|---|--:|--:|--:|\n")
	for _, r := range f.Rows {
		if r.Accuracy == nil {
			continue
		}
		operands, shape, _ := cutLast(r.Case, ", ")
		peer := ""
		if r.Accuracy.Peer != nil {
			peer = errorCell(*r.Accuracy.Peer)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", cell(operands), cell(shape), errorCell(r.Accuracy.Ours), errorCell(r.Accuracy.FMA), peer)
	}
	b.WriteString("\n" + f.specialTable())
	return b.String()
}

// errorCell prints the largest and the mean error, and how many elements are wrong.
func errorCell(e accuracy.Error) string {
	text := fmt.Sprintf("%.3g, %.3g", e.Largest, e.Mean)
	if e.Largest == 0 {
		text = "0"
	}
	switch {
	case e.Wrong > 0 && e.Largest == 0:
		return fmt.Sprintf("%d wrong", e.Wrong)
	case e.Wrong > 0:
		return fmt.Sprintf("%s, %d wrong", text, e.Wrong)
	}
	return text
}

// specialTable has a line for each kind of special operands and a column for each size: the time as a multiple of that of the
// usual operands, the first kind. README.md has such times.
func (f *File) specialTable() string {
	var sizes, kinds []string
	times := map[Key]float64{}
	add := func(list []string, s string) []string {
		for _, before := range list {
			if before == s {
				return list
			}
		}
		return append(list, s)
	}
	for _, r := range f.Rows {
		if r.Op == SpecialTimes {
			size, kind, _ := strings.Cut(r.Case, ", ")
			sizes, kinds = add(sizes, size), add(kinds, kind)
			times[Key{kind, size, ""}] = r.Micros
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("| Elements of A, beside " + cell(kinds[0]) + " | " + strings.Join(sizes, " | ") + " |\n|---" + strings.Repeat("|--:", len(sizes)) + "|\n")
	for _, kind := range kinds[1:] {
		fmt.Fprintf(&b, "| %s ", cell(kind))
		for _, size := range sizes {
			fmt.Fprintf(&b, "| %.2f x ", times[Key{kind, size, ""}]/times[Key{kinds[0], size, ""}])
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// cutLast cuts a text around the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

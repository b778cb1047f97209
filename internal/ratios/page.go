package ratios

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/internal/results"
)

// UpdatePage returns the text of docs/drawn.md with the tables of drawn cases, between the markers <!-- drawn:begin --> and
// <!-- drawn:end -->. It implements [results.Update].
func UpdatePage(text string, files []*results.File, _ []results.Key) (string, error) {
	tables := make([]string, len(files))
	for i, f := range files {
		tables[i] = report(f)
	}
	return results.Splice(text, "drawn", cmp.Or(strings.Join(tables, "\n"), "Not measured yet.\n"))
}

// Picture is the name of the plot of a GPU's drawn cases, beside the page.
func Picture(gpu string) string {
	return "drawn-" + strings.TrimSuffix(results.Name(gpu), ".json") + ".svg"
}

// report describes the drawn cases of a GPU: the ratios by op, the cases that miss a goal, and the plot.
func report(f *results.File) string {
	points := Of(f)
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**, driver %s (CUDA %s), %s: %d cases, seed %d, of which %d have a time in another library. Device copy: %.0f GB/s.\n\n",
		f.GPU, f.Driver, f.CUDA, f.Date, len(f.Rows), f.Seed, len(points), f.Copy)
	b.WriteString(f.Since())
	writeTable(&b, Table(points))
	slow := [][]string{{"below 0.8", "Stheno", "the other", "ratio", "the other is"}}
	for _, p := range points {
		if p.Ratio() < level {
			slow = append(slow, []string{p.Row.Key.String(), results.Micros(p.Row.Micros), results.Micros(p.Peer.Micros), fmt.Sprintf("%.2f", p.Ratio()), p.Peer.By})
		}
	}
	if len(slow) > 1 {
		b.WriteString("\n")
		writeTable(&b, slow)
	}
	starved := [][]string{{"over 64 MB, below 60 % of copy", "Stheno", "of copy"}}
	for _, row := range Starved(f) {
		starved = append(starved, []string{row.Key.String(), row.Time(), f.OfCopy(row)})
	}
	if len(starved) > 1 {
		b.WriteString("\n")
		writeTable(&b, starved)
	}
	if len(points) > 0 {
		fmt.Fprintf(&b, "\n![All drawn cases: bytes, or operations, over time, here and in the fastest other library, under the roofline](%s)\n", Picture(f.GPU))
	}
	return b.String()
}

// writeTable writes lines of cells, the first of which is the header, as Markdown.
func writeTable(b *strings.Builder, lines [][]string) {
	for i, cells := range lines {
		for _, cell := range cells {
			fmt.Fprintf(b, "| %s ", strings.ReplaceAll(cell, "|", `\|`))
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString("|---" + strings.Repeat("|--:", len(cells)-1) + "|\n")
		}
	}
}

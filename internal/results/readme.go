package results

import (
	"fmt"
	"os"
	"strings"
)

// UpdateReadme gives README.md's text with the speed table of the given files
// between the markers <!-- speed:begin --> and <!-- speed:end -->. A missing
// marker is an error.
func UpdateReadme(text string, files []*File) (string, error) {
	return splice(text, "speed", SpeedTable(files))
}

// CheckReadme is an error that says what to run if README.md is not what
// UpdateReadme makes of it.
func CheckReadme(path string, files []*File) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	want, err := UpdateReadme(string(text), files)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if want != string(text) {
		return fmt.Errorf("%s: its speed table is stale: run 'go run ./cmd/stheno bench -readme'", path)
	}
	return nil
}

// splice replaces what stands between the markers of a name.
func splice(text, name, table string) (string, error) {
	begin, end := "<!-- "+name+":begin -->\n", "<!-- "+name+":end -->"
	head, rest, ok := strings.Cut(text, begin)
	if !ok {
		return "", fmt.Errorf("results: no line %q", strings.TrimSpace(begin))
	}
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("results: no %q after %q", end, strings.TrimSpace(begin))
	}
	return head + begin + table + end + tail, nil
}

// SpeedTable is a table of the rows of each file, without those of numbered
// versions.
func SpeedTable(files []*File) string {
	if len(files) == 0 {
		return "Not measured yet.\n"
	}
	var b strings.Builder
	for i, f := range files {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "**%s**, driver %s (CUDA %s), %s, kernels `%.12s`. Device copy: %.0f GB/s. Medians by CUDA events,\n",
			f.GPU, f.Driver, f.CUDA, f.Date, f.Digest, f.Copy)
		b.WriteString("operands on the device, random values; peers measured in the same run.\n\n")
		b.WriteString("| Op | Case | Type | Time | Rate | Of copy | Fastest peer | Speed of peer's |\n|---|---|---|--:|--:|--:|---|--:|\n")
		for _, r := range f.Rows {
			if r.Version > 0 { // told by the programs in examples
				continue
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", r.Op, cell(r.Case), long(r.Dtype),
				Micros(r.Micros), r.Rate(), f.OfCopy(r), f.peer(r), f.OfPeer(r))
		}
		fmt.Fprintf(&b, "\nTests and sanitizers in the same run: %s.\n", f.outcome())
	}
	return b.String()
}

// OfCopy prints a row's share of device copy's bandwidth; "" for a row that
// the arithmetic bounds.
func (f *File) OfCopy(r Row) string {
	if r.Arithmetic() || f.Copy == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*r.GBs()/f.Copy)
}

// OfPeer prints a row's speed as a share of the fastest peer's; "" without
// one.
func (f *File) OfPeer(r Row) string {
	p, ok := f.Best(r.Key)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*p.Micros/r.Micros)
}

func (f *File) peer(r Row) string {
	p, ok := f.Best(r.Key)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s, %s", p.By, Micros(p.Micros))
}

// outcome counts the suites by result and names those that failed.
func (f *File) outcome() string {
	passed, cut := 0, 0
	var failed []string
	for _, s := range f.Suites {
		switch s.Result {
		case "PASS":
			passed++
		case "CUT":
			cut++
		case "FAIL":
			if s.Known != "" {
				s.Name += " (" + s.Known + ")"
			}
			failed = append(failed, s.Name)
		}
	}
	text := fmt.Sprintf("%d of %d suites pass", passed, len(f.Suites))
	if cut > 0 {
		text += fmt.Sprintf("; %d ran out of time with no failure until then", cut)
	}
	if len(failed) > 0 {
		text += "; failed: " + strings.Join(failed, ", ")
	}
	return text
}

// Micros prints a time of that many microseconds with three digits.
func Micros(us float64) string {
	unit := "us"
	if us >= 1000 {
		us, unit = us/1000, "ms"
	}
	switch {
	case us < 10:
		return fmt.Sprintf("%.2f %s", us, unit)
	case us < 100:
		return fmt.Sprintf("%.1f %s", us, unit)
	}
	return fmt.Sprintf("%.0f %s", us, unit)
}

func long(dtype string) string { return strings.Replace(dtype, "f", "float", 1) }

// cell is text that cannot break out of a table's cell.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

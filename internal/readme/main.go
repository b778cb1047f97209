// Command readme writes the op table of README.md from the Specs of package opspec. Run it in the
// root of the repository; a test fails when the table is out of date.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/stheno-ml/stheno/internal/opspec"
)

func main() {
	if err := update("README.md"); err != nil {
		fmt.Fprintln(os.Stderr, "readme:", err)
		os.Exit(1)
	}
}

func update(path string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := replace(string(old), "ops", opTable())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o666)
}

// opTable is a Markdown table of all ops.
func opTable() string {
	var b strings.Builder
	cell := strings.NewReplacer("|", `\|`) // a bar would end the cell, in code too
	b.WriteString("| Op | Formula | What it does |\n|---|---|---|\n")
	for _, s := range opspec.All() {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", s.Name, cell.Replace(s.Formula), cell.Replace(s.Doc))
	}
	return b.String()
}

// replace puts body between the markers <!-- name:begin --> and
// <!-- name:end -->, each on a line of its own.
func replace(text, name, body string) (string, error) {
	begin, end := "<!-- "+name+":begin -->\n", "<!-- "+name+":end -->"
	head, rest, ok := strings.Cut(text, begin)
	if !ok {
		return "", fmt.Errorf("no line %q", strings.TrimSpace(begin))
	}
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("no %q after %q", end, strings.TrimSpace(begin))
	}
	return head + begin + body + end + tail, nil
}

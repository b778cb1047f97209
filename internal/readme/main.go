// Command readme writes the op table of README.md from the Specs of package opspec, and there and
// in docs/gorgonia-ops.md the findings of package coverage about Gorgonia's ops. Run it in the root
// of the repository; a test fails if a table is out of date.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stheno-ml/stheno/internal/command"
	"github.com/stheno-ml/stheno/internal/coverage"
	"github.com/stheno-ml/stheno/internal/opspec"
)

func main() {
	command.Flags("readme")
	pages, err := updated(".")
	for path, text := range pages {
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o666)
		}
	}
	command.Exit("readme", err)
}

// updated returns the texts of the pages of a repository with their tables made anew, by
// their paths.
func updated(root string) (map[string]string, error) {
	rows, err := coverage.Measure()
	if err != nil {
		return nil, err
	}
	readme, ops := filepath.Join(root, "README.md"), filepath.Join(root, "docs", "gorgonia-ops.md")
	pages := map[string]string{}
	for _, t := range []struct{ path, name, body string }{
		{readme, "ops", opTable()}, {readme, "coverage", coverage.Summary(rows)}, {ops, "coverage", coverage.Table(rows)},
	} {
		if _, read := pages[t.path]; !read {
			text, err := os.ReadFile(t.path)
			if err != nil {
				return nil, err
			}
			pages[t.path] = string(text)
		}
		if pages[t.path], err = replace(pages[t.path], t.name, t.body); err != nil {
			return nil, fmt.Errorf("%s: %w", t.path, err)
		}
	}
	return pages, nil
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

package maintain

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/opspec"
)

// A Table is a part of a page that is made of the records of a set.
type Table struct {
	Page, Marker string // it stands between <!-- marker:begin --> and <!-- marker:end -->
	Set          string
	Of           func(f *records.File, cases []records.Key) string // the table of a GPU
}

// Tables are all of them.
var Tables = []Table{
	{"docs/speed.md", "speed", records.Ops, records.Speed},
	{"README.md", "steps", records.Steps, records.StepSpeed},
	{"docs/graphs.md", "graphs", records.Graphs, records.GraphTimes},
	{"docs/training.md", "steps", records.Steps, records.StepTimes},
	{"docs/training.md", "parts", records.Steps, records.Parts},
	{"docs/precision.md", "precision", records.Steps, records.PrecisionTimes},
	{"docs/precision.md", "losses", records.Losses, records.LossCurves},
	{"docs/precision.md", "accuracy", records.Products, records.Errors},
	{"docs/drawn.md", "drawn", records.Drawn, records.DrawnCases},
	{"docs/several-gpus.md", "scaling", records.Ranks, records.Scaling},
	{"docs/several-gpus.md", "allreduce", records.Ranks, records.AllReduces},
}

// Text returns the table of all GPUs.
func (t Table) Text(files []*records.File) string {
	var tables []string
	for _, f := range files {
		if text := t.Of(f, Keys(t.Set)); text != "" {
			tables = append(tables, text)
		}
	}
	if len(tables) == 0 {
		return "Not measured yet.\n"
	}
	return strings.Join(tables, "\n")
}

// Pages returns the pages of a repository with their tables made anew, by their paths: those of the records and of the Specs of
// package opspec.
func Pages(root string) (map[string]string, error) {
	pages := map[string]string{}
	put := func(page, marker, text string) error {
		if pages[page] == "" {
			old, err := os.ReadFile(filepath.Join(root, page))
			if err != nil {
				return fmt.Errorf("%w (the tables are written in the repository's root)", err)
			}
			pages[page] = string(old)
		}
		var err error
		if pages[page], err = records.Splice(pages[page], marker, text); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		return nil
	}
	for _, t := range Tables {
		files, err := Read(filepath.Join(root, "bench", "results"), t.Set)
		if err == nil {
			err = put(t.Page, t.Marker, t.Text(files))
		}
		if err != nil {
			return nil, err
		}
	}
	text, err := predicted()
	if err == nil {
		err = put("docs/speed.md", "predicted", text)
	}
	if err != nil {
		return nil, err
	}
	return pages, put("README.md", "ops", opTable())
}

// opTable is a table of all ops.
func opTable() string {
	lines := [][]string{{"Op", "Formula", "What it does"}}
	for _, s := range opspec.All() {
		lines = append(lines, []string{"`" + s.Name + "`", "`" + s.Formula + "`", s.Doc})
	}
	return records.Grid("l", lines)
}

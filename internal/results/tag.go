package results

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A TagRecord is one try of Gorgonia's tag cuda: a build, or a run on a GPU.
// Files of bench/results/tag hold arrays of them: built.json is written by
// internal/tagmatrix, the others come from machines with a GPU.
type TagRecord struct {
	Versions
	Date   string `json:"date"`
	Build  string `json:"build,omitempty"`  // PASS, or what failed; "" where it was not tried
	Run    string `json:"run,omitempty"`    // the same, for the tests on a GPU
	GPU    string `json:"gpu,omitempty"`    // of a run
	Driver string `json:"driver,omitempty"` // of a run
}

// Versions are what a program with the tag cuda is built of.
type Versions struct {
	CUDA     string `json:"cuda"`  // such as 13.0
	CUDNN    string `json:"cudnn"` // such as 9.28.0
	Go       string `json:"go"`    // such as go1.26.8
	Gorgonia string `json:"gorgonia"`
	CU       string `json:"cu"`
	Tensor   string `json:"tensor"`
}

// ReadTag reads all records of a folder.
func ReadTag(dir string) ([]TagRecord, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []TagRecord
	for _, path := range paths {
		var records []TagRecord
		if err := readJSON(path, &records); err != nil {
			return nil, err
		}
		for i, r := range records {
			if r.CUDA == "" || r.CUDNN == "" || r.Go == "" || r.Gorgonia == "" || r.CU == "" || r.Tensor == "" || r.Date == "" {
				return nil, fmt.Errorf("results: %s: record %d is %+v, want date, cuda, cudnn, go, gorgonia, cu and tensor", path, i, r)
			}
			if r.Build == "" && r.Run == "" {
				return nil, fmt.Errorf("results: %s: record %d has neither build nor run", path, i)
			}
			if r.Run != "" && (r.GPU == "" || r.Driver == "") {
				return nil, fmt.Errorf("results: %s: record %d has a run without gpu and driver", path, i)
			}
		}
		all = append(all, records...)
	}
	return all, nil
}

// WriteTag writes a file of records.
func WriteTag(path string, records []TagRecord) error {
	text, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// UpdateTag gives a page's text with the table of records between the markers
// <!-- tag:begin --> and <!-- tag:end -->.
func UpdateTag(text string, records []TagRecord) (string, error) {
	return splice(text, "tag", TagTable(records))
}

// ProgramsFile is what the programs of cudaops/tape came to on a GPU, a table
// that its test writes with STHENO_RECORD.
const ProgramsFile = "bench/results/tag/programs.md"

// UpdatePrograms gives a page's text with that table between the markers
// <!-- breakages:begin --> and <!-- breakages:end -->.
func UpdatePrograms(text, table string) (string, error) {
	return splice(text, "breakages", table)
}

// TagTable is a table of the versions that were tried, the newest first.
func TagTable(records []TagRecord) string {
	var order []Versions
	of := map[Versions][]TagRecord{}
	for _, r := range records {
		if of[r.Versions] == nil {
			order = append(order, r.Versions)
		}
		of[r.Versions] = append(of[r.Versions], r)
	}
	slices.SortStableFunc(order, func(a, b Versions) int {
		return slices.Compare(b.numbers(), a.numbers())
	})
	var b strings.Builder
	b.WriteString("| CUDA | cuDNN | Go | gorgonia | cu | tensor | Built and vetted, no GPU | Ran | GPU, driver |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, v := range order {
		var built, ran, on []string
		for _, r := range of[v] {
			if r.Build != "" {
				built = append(built, outcomeOn(r.Build, r.Date))
			}
			if r.Run != "" {
				ran = append(ran, outcomeOn(r.Run, r.Date))
				on = append(on, fmt.Sprintf("%s, %s", r.GPU, r.Driver))
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", v.CUDA, v.CUDNN, strings.TrimPrefix(v.Go, "go"),
			v.Gorgonia, v.CU, v.Tensor, orNotTried(built), orNotTried(ran), cell(strings.Join(on, "; ")))
	}
	return b.String()
}

// numbers are CUDA's and cuDNN's version, to sort by.
func (v Versions) numbers() []int {
	var n [5]int
	fmt.Sscanf(v.CUDA, "%d.%d", &n[0], &n[1])
	fmt.Sscanf(v.CUDNN, "%d.%d.%d", &n[2], &n[3], &n[4])
	return n[:]
}

func outcomeOn(result, date string) string {
	if result == "PASS" {
		return "yes, " + date
	}
	return cell("**no**, " + date + ": " + result)
}

func orNotTried(all []string) string {
	if len(all) == 0 {
		return "not tried"
	}
	return strings.Join(all, "; ")
}

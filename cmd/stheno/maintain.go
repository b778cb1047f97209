package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/stheno-ml/stheno/internal/evidence"
	"github.com/stheno-ml/stheno/internal/ratios"
	"github.com/stheno-ml/stheno/internal/results"
)

// maintain holds the commands that maintain the repository's records. They run in its root.
type maintain struct {
	Check  checkEvidence `cmd:"" help:"Compare the records of GPUs with the kernels of this build."`
	Suites listSuites    `cmd:"" help:"List the test suites that must run on a GPU."`
	Cases  struct {
		Ops    listOps    `cmd:"" help:"List the timed cases of ops."`
		Graphs listGraphs `cmd:"" help:"List the timed graphs."`
		Steps  listSteps  `cmd:"" help:"List the timed training steps."`

		Accuracy listAccuracy `cmd:"" help:"Describe the products whose errors are compared with another library's, as JSON."`
	} `cmd:"" help:"List the timed cases with their recorded times."`
	Record struct {
		Ops    recordOps    `cmd:"" help:"Time the cases of ops that lack a record."`
		Graphs recordGraphs `cmd:"" help:"Time the graphs that lack a record."`
		Steps  recordSteps  `cmd:"" help:"Time the training steps that lack a record."`

		Accuracy recordAccuracy `cmd:"" help:"Measure the errors of products, and their times with special operands."`
	} `cmd:"" help:"Time on this machine's GPU the cases without a record."`
	Ratios listRatios `cmd:"" help:"Show the results in a file of drawn cases, as stheno bench gpu --random does at its end."`
	Merge  merge      `cmd:"" help:"Add a file of results to the recorded ones."`
	Tables tables     `cmd:"" help:"Write the tables of README.md, docs/graphs.md, docs/training.md, docs/precision.md and docs/drawn.md from the records, and the plot of drawn cases."`
}

func (maintain) Help() string {
	return `These commands read and write the repository, in whose root they run. CONTRIBUTING.md explains when they are
wanted; bench/gpu-run.sh calls most of them.`
}

// Folders of the recorded results.
var (
	recordedOps    = filepath.Join("bench", "results")
	recordedGraphs = filepath.Join(recordedOps, "graphs")
	recordedSteps  = filepath.Join(recordedOps, "steps")

	recordedAccuracy = filepath.Join(recordedOps, "accuracy")
	recordedDrawn    = filepath.Join(recordedOps, "drawn")
)

// checkEvidence compares the records of GPUs with the kernels of this build.
type checkEvidence struct {
	Recorded string `default:"bench/results" placeholder:"FOLDER" type:"path" help:"Folder of the records (default: ${default})."`
}

func (checkEvidence) Help() string {
	return `Names each case and each suite of tests that ran with other kernels than those of this build, or not at
all; the exit status is 1 if there is any.`
}

// Run prints the missing records.
func (e checkEvidence) Run(c *console) error {
	files, err := readRecords(e.Recorded)
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		stale, unmeasured := evidence.Check(file)
		errs = append(errs, stale, unmeasured)
		if stale == nil && unmeasured == nil {
			fmt.Fprintf(c.out, "%s: everything has run with these kernels\n", file.GPU)
		}
	}
	return errors.Join(errs...)
}

// readRecords reads the results of a folder, which must have some.
func readRecords(folder string) ([]*results.File, error) {
	files, err := evidence.Read(folder)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no results in %s, want a .json file for each GPU", folder)
	}
	return files, err
}

// listSuites lists the suites that must run on a GPU.
type listSuites struct {
	Recorded string `default:"bench/results" placeholder:"FOLDER" type:"path" help:"Folder of the records (default: ${default})."`
	GPU      string `name:"gpu" xor:"gpu" placeholder:"NAME" help:"Name of the GPU (default: that of this machine's first)."`
	All      bool   `xor:"gpu" help:"List all suites, as if nothing were recorded."`
	Passed   string `placeholder:"FILE" type:"existingfile" help:"Leave out suites that passed according to this file, which bench/gpu-run.sh wrote."`
}

func (listSuites) Help() string {
	return `A line each, with tabs between: name, tool, test program, -test.run or -, part and kernels. Left out are the
suites that are recorded with the kernels of this build.`
}

// Run prints the suites.
func (l listSuites) Run(c *console) error {
	file, err := &results.File{}, error(nil)
	if !l.All {
		if file, err = recordOf(l.Recorded, l.GPU); err != nil {
			return err
		}
	}
	var passed []results.Suite
	if l.Passed != "" {
		if passed, err = results.ReadSuites(l.Passed); err != nil {
			return err
		}
	}
	wanted, err := evidence.Suites()
	if err != nil {
		return err
	}
	for _, s := range wanted {
		if s.State(file.Suites) != evidence.Current && !s.In(passed) {
			fmt.Fprintf(c.out, "%s\t%s\t%s\t%s\t%d/%d\t%v\n", s.Name(), s.Tool, s.Binary, cmp.Or(s.Run, "-"), s.Part, s.Parts, s.Kernels)
		}
	}
	return nil
}

// recordOf reads the record of a GPU, by default that of this machine's first.
func recordOf(folder, gpu string) (*results.File, error) {
	if gpu == "" {
		device, err := deviceOf(0, "--gpu names the GPU of another machine")
		if err != nil {
			return nil, err
		}
		gpu = device.Name
	}
	return evidence.Recorded(folder, gpu)
}

// listRatios prints the statistics of a file of drawn cases.
type listRatios struct {
	File string `arg:"" type:"existingfile" help:"File of results, which stheno bench gpu --random --json wrote."`
	Plot string `placeholder:"FILE" type:"path" help:"Draw the times of all cases into this .svg or .png file."`
}

// Run shows it.
func (l listRatios) Run(c *console) error {
	f, err := results.Read(l.File)
	if err != nil {
		return err
	}
	return conclude(c, f, l.Plot)
}

// merge adds a file to the recorded results of its GPU.
type merge struct {
	File string `arg:"" type:"existingfile" help:"File of results, from bench/gpu-run.sh."`
	Into string `default:"bench/results" placeholder:"FOLDER" type:"existingdir" help:"Folder of the records (default: ${default}); those of graphs are in bench/results/graphs, of training steps in bench/results/steps, of errors of products in bench/results/accuracy, of drawn cases in bench/results/drawn."`
}

// Run merges.
func (m merge) Run(c *console) error {
	later, err := results.Read(m.File)
	if err != nil {
		return err
	}
	file, err := evidence.Recorded(m.Into, later.GPU)
	if err != nil {
		return err
	}
	if err := file.Merge(later); err != nil {
		return err
	}
	path := filepath.Join(m.Into, results.Name(later.GPU))
	if err := file.Write(path); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%d rows, %d peers and %d suites of the %s are now in %s\n", len(later.Rows), len(later.Peers), len(later.Suites), later.GPU, path)
	return err
}

// tables rewrites the tables of times in README.md and docs, and the plot of drawn cases.
type tables struct{}

// Run rewrites them.
func (tables) Run() error {
	return errors.Join(
		rewrite("README.md", results.UpdateReadme, recordedOps, evidence.Keys()),
		rewrite(filepath.Join("docs", "graphs.md"), results.UpdateGraphs, recordedGraphs, evidence.GraphKeys()),
		rewrite("README.md", results.UpdateReadmeSteps, recordedSteps, evidence.StepKeys()),
		rewrite(filepath.Join("docs", "training.md"), results.UpdateSteps, recordedSteps, evidence.StepKeys()),
		rewrite(filepath.Join("docs", "training.md"), results.UpdateParts, recordedSteps, evidence.StepKeys()),
		rewrite(filepath.Join("docs", "precision.md"), results.UpdatePrecision, recordedSteps, evidence.StepKeys()),
		rewrite(filepath.Join("docs", "precision.md"), results.UpdateAccuracy, recordedAccuracy, nil),
		rewrite(filepath.Join("docs", "drawn.md"), ratios.UpdatePage, recordedDrawn, nil),
		plotDrawn("docs", recordedDrawn))
}

// plotDrawn draws the plots of a folder of drawn cases into another.
func plotDrawn(into, recorded string) error {
	files, err := readRecords(recorded)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := plotRatios(filepath.Join(into, ratios.Picture(f.GPU)), f, ratios.Of(f)); err != nil {
			return err
		}
	}
	return nil
}

// rewrite updates a page from a folder of results.
func rewrite(page string, update results.Update, recorded string, cases []results.Key) error {
	files, err := readRecords(recorded)
	if err != nil {
		return fmt.Errorf("%w (the tables are written in the repository's root)", err)
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("%w (the tables are written in the repository's root)", err)
	}
	text, err := update(string(old), files, cases)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

// printTable prints rows of cells in columns.
func printTable(c *console, lines [][]string) error {
	t := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, cells := range lines {
		for i, cell := range cells {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, cell)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

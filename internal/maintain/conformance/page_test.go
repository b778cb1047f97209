package conformance

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

const (
	root          = "../../../"
	recordsFolder = root + "bench/results/conformance"
	page          = root + "docs/conformance.md"
)

// readPage returns the text of the page, and the text with the tables of all records between its markers.
func readPage(t *testing.T) (text, want string, all []Record) {
	tables := ""
	for _, name := range testutil.Get[[]string](t)(filepath.Glob(filepath.Join(recordsFolder, "*.json"))) {
		var r Record
		testutil.Do(t, json.Unmarshal(testutil.Get[[]byte](t)(os.ReadFile(name)), &r))
		tables, all = tables+r.table(), append(all, r)
	}
	text = string(testutil.Get[[]byte](t)(os.ReadFile(page)))
	return text, testutil.Get[string](t)(records.Splice(text, "conformance", tables)), all
}

func (r Record) table() string {
	lines := [][]string{{"Suite", "Tests", "Pass on the tape machine", "Pass on Stheno", "Values compared", "Greatest difference", "Steps on the host for want of a kernel"}}
	var failed, values []string
	others := map[string]int{}
	for _, o := range r.Suites {
		lines = append(lines, []string{o.Name, fmt.Sprint(o.Tests), fmt.Sprint(o.Tape), fmt.Sprint(o.Stheno), fmt.Sprint(o.Nodes), o.worst(), o.host()})
		for _, name := range o.Fail {
			failed = append(failed, fmt.Sprintf("`%s` %s", name, cmp.Or(excused(name), "not explained")))
		}
		for why, n := range o.Others {
			others[why] += n
		}
		values = slices.Concat(values, o.Apart, o.Errors)
	}
	for _, why := range slices.Sorted(maps.Keys(others)) {
		values = append(values, fmt.Sprintf("%d values: %s", others[why], why))
	}
	return fmt.Sprintf("**%s**, %s, Gorgonia %s, onnx-go %s.\n\n", r.Device, r.Date, r.Gorgonia, r.ONNX) + records.Grid("lrrrrll", lines) + "\n" +
		r.timesTable() + list("Tests that pass on the tape machine alone", failed) + list("Runs and values apart", values)
}

// list returns lines as a list under a title, "" if there are none.
func list(title string, lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return title + ":\n\n- " + strings.Join(lines, "\n- ") + "\n\n"
}

// timesTable compares the times of runs, "" if there are none.
func (r Record) timesTable() string {
	var lines [][]string
	for _, o := range r.Suites {
		t := o.Times
		if t == nil {
			continue
		}
		if lines == nil {
			lines = [][]string{{"Program", fmt.Sprintf("Tape machine, %d cores, steps/s", t.Cores), fmt.Sprintf("Stheno, %s, steps/s", r.Device), "Stheno is", "To make the machine: tape, ms", "Stheno, ms"}}
		}
		lines = append(lines, []string{o.Name, records.Digits3(t.Tape), records.Digits3(t.Stheno), records.Digits3(t.Stheno/t.Tape) + " times as fast", records.Digits3(1e3 * t.TapeMade), records.Digits3(1e3 * t.SthenoMade)})
	}
	if lines == nil {
		return ""
	}
	return records.Grid("lr", lines) + "\n"
}

func (o Outcome) worst() string {
	if o.Nodes == 0 {
		return ""
	}
	if o.Worst == 0 {
		return "none"
	}
	op, _, _ := strings.Cut(o.Of, "{")
	return fmt.Sprintf("%.1g, %s", o.Worst, op)
}

func (o Outcome) host() string {
	var list []string
	for _, op := range slices.Sorted(maps.Keys(o.Host)) {
		list = append(list, fmt.Sprintf("%s %d", op, o.Host[op]))
	}
	return strings.Join(list, ", ")
}

// String returns the summary that a run prints for the suite.
func (o Outcome) String() string {
	s := fmt.Sprintf("%d tests, %d pass on the tape machine, %d on Stheno; %d values compared, %s; on the host: %s", o.Tests, o.Tape, o.Stheno, o.Nodes, o.worst(), o.host())
	for _, l := range slices.Concat(o.Fail, o.Apart, o.Errors) {
		s += "\n        " + l
	}
	return s
}

// faults returns an error that names the unexplained failures.
func (o Outcome) faults() error {
	var errs []error
	for _, name := range o.Fail {
		if excused(name) == "" {
			errs = append(errs, fmt.Errorf("%s: %s passes on the tape machine alone", o.Name, name))
		}
	}
	for _, op := range slices.Sorted(maps.Keys(o.Host)) {
		if !slices.Contains(onHost, op) {
			errs = append(errs, fmt.Errorf("%s: %s runs on the host", o.Name, op))
		}
	}
	for _, l := range slices.Concat(o.Apart, o.Errors) {
		errs = append(errs, fmt.Errorf("%s: %s", o.Name, l))
	}
	return errors.Join(errs...)
}

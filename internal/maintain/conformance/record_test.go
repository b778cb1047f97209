package conformance

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// Record is the result of a run of all suites, in bench/results/conformance.
type Record struct {
	Device   string // that Stheno ran on: "host", or a GPU's name
	Date     string
	Gorgonia string // versions
	ONNX     string
	Hook     string // digest
	Suites   []Outcome
}

// Outcome is the result of the runs of a suite.
type Outcome struct {
	Name     string
	Tests    int            // with an outcome on the tape machine; 1 for a program
	Tape     int            // tests among them that pass there
	Stheno   int            // and that pass on Stheno
	Fail     []string       `json:",omitempty"` // those that pass on the tape machine alone
	Machines int            // that were made
	Runs     int            // that were compared
	Nodes    int            // whose values were compared
	Worst    float64        // of the differences in runs with none apart, as a share of a value's greatest element or 1
	Of       string         `json:",omitempty"` // the op of the node with that difference
	Apart    []string       `json:",omitempty"` // nodes that differ by more than their type allows, or have another type or shape
	Others   map[string]int `json:",omitempty"` // values that differ for a known reason, by that
	Errors   []string       `json:",omitempty"` // runs of Stheno with an error that the tape machine did not have, or without one that it had
	Host     map[string]int `json:",omitempty"` // steps on the host for want of a kernel, by their ops, over all machines
	Times    *Times         `json:",omitempty"` // where they were measured
}

// Times are those of one machine of a program, the one with the slowest runs on the tape:
// how long it takes to make one, and how many runs it makes a second.
type Times struct {
	Cores                int
	TapeMade, SthenoMade float64 // seconds
	Tape, Stheno         float64 // runs a second
}

// line is a line of the hook's log.
type line struct {
	Event, Test, Error string
	Host               []string
	Nodes              int
	Worst              float64
	Node               string
	Apart, Missing     []string
	Made, Seconds      float64
	Runs, Cores        int
}

// outcome reads the logs of a suite's runs.
func (s suite) outcome(t *testing.T, dir string) Outcome {
	o := Outcome{Name: s.name, Host: map[string]int{}}
	tape, ours := s.results(t, dir, "tape"), s.results(t, dir, "stheno")
	for _, name := range slices.Sorted(maps.Keys(tape)) {
		o.Tests++
		if tape[name] {
			o.Tape++
		}
		if ours[name] {
			o.Stheno++
		} else if tape[name] {
			o.Fail = append(o.Fail, name)
		}
	}
	for _, l := range s.lines(t, dir, "compare") {
		o.add(l)
	}
	if s.timed {
		timed := func(l line) bool { return l.Event != "timed" }
		o.Times = slowest(slices.DeleteFunc(s.lines(t, dir, timedModes[0]), timed), slices.DeleteFunc(s.lines(t, dir, timedModes[1]), timed))
	}
	return o
}

// lines reads the hook's log of a run.
func (s suite) lines(t *testing.T, dir, mode string) (lines []line) {
	text := testutil.Get[[]byte](t)(os.ReadFile(s.log(dir, mode, "jsonl")))
	for one := range bytes.Lines(text) {
		var l line
		testutil.Do(t, json.Unmarshal(one, &l))
		lines = append(lines, l)
	}
	return lines
}

// slowest compares the machine whose run takes longest on the tape with the one that Stheno
// makes in its place, nil if there is none.
func slowest(tape, stheno []line) (slow *Times) {
	for i := range min(len(tape), len(stheno)) {
		a, b := tape[i], stheno[i]
		if a.Error != "" || b.Error != "" || a.Seconds == 0 || b.Seconds == 0 {
			continue
		}
		t := &Times{b.Cores, a.Made, b.Made, float64(a.Runs) / a.Seconds, float64(b.Runs) / b.Seconds}
		if slow == nil || t.Tape < slow.Tape {
			slow = t
		}
	}
	return slow
}

var opName = regexp.MustCompile(`^host ([A-Za-z0-9]+)`)

func (o *Outcome) add(l line) {
	if l.Error != "" && excused(l.Test) == "" {
		o.Errors = append(o.Errors, l.Test+": "+l.Error)
	}
	if l.Event == "machine" {
		o.Machines++
		for _, h := range l.Host {
			name := h
			if m := opName.FindStringSubmatch(h); m != nil {
				name = m[1]
			}
			o.Host[name]++
		}
		return
	}
	o.Runs++
	o.Nodes += l.Nodes
	apart := append(l.Apart, l.Missing...)
	if l.Worst > o.Worst && len(apart) == 0 {
		o.Worst, o.Of = l.Worst, l.Node
	}
	for _, a := range apart {
		if why := otherOp(a); why != "" {
			if o.Others == nil {
				o.Others = map[string]int{}
			}
			o.Others[why]++
			continue
		}
		o.Apart = append(o.Apart, l.Test+": "+a)
	}
}

// otherOp returns why the value of a node may differ, "" if it may not.
func otherOp(node string) string {
	for op, why := range otherOps {
		if strings.HasPrefix(node, op) {
			return why
		}
	}
	return ""
}

var result = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`)

// results returns which tests of a run passed, without skipped ones; for a program, whether it
// ended without an error.
func (s suite) results(t *testing.T, dir, mode string) map[string]bool {
	exit := testutil.Get[[]byte](t)(os.ReadFile(s.log(dir, mode, "exit")))
	if s.test == "" {
		return map[string]bool{s.name: strings.TrimSpace(string(exit)) == "0"}
	}
	passed := map[string]bool{}
	for _, m := range result.FindAllStringSubmatch(string(testutil.Get[[]byte](t)(os.ReadFile(s.log(dir, mode, "log")))), -1) {
		if kind, name := m[1], m[2]; kind != "SKIP" {
			passed[name] = kind == "PASS"
		}
	}
	for name := range passed { // a test with subtests is represented by these
		if at := strings.LastIndex(name, "/"); at >= 0 {
			delete(passed, name[:at])
		}
	}
	if len(passed) == 0 {
		t.Fatalf("%s, %s: no test has an outcome", s.name, mode)
	}
	return passed
}

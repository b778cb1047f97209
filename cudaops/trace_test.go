package cudaops

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/graphspec"
	"github.com/stheno-ml/stheno/internal/must"
)

// A trace has an event for each step of the last run, one after the other and as long as
// the report says, on the track of where it ran.
func TestTrace(t *testing.T) {
	c := graphspec.CrossEntropy(64, 10)
	g, _ := c.Graph(c.Values([]float32{0.25, -0.5, 0.75}))
	vm := must.Get[*VM](t)(NewVM(g, OnHost(), Timed()))
	defer vm.Close()
	if err := vm.Report().Trace(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "RunAll") {
		t.Errorf("before a run: %v, want an error that says to run", err)
	}
	must.Do(t, vm.RunAll())
	report := vm.Report()
	report.Steps = append(report.Steps, Step{Op: "an op", Where: "host", Reason: "no kernel", Time: 3 * time.Microsecond, Nodes: []string{"n"}})
	var text bytes.Buffer
	must.Do(t, report.Trace(&text))
	var trace struct {
		TraceEvents []struct {
			Name, Ph string
			Ts, Dur  float64
			Tid      int
			Args     map[string]any
		}
	}
	must.Do(t, json.Unmarshal(text.Bytes(), &trace))
	events := trace.TraceEvents[2:] // the first two name the tracks
	if len(events) != len(report.Steps) || len(events) < 2 {
		t.Fatalf("%d events, want %d", len(events), len(report.Steps))
	}
	at := 0.0
	for i, e := range events {
		s := report.Steps[i]
		if e.Name != s.Op || e.Ph != "X" || math.Abs(e.Ts-at) > 1e-6 || math.Abs(e.Dur-float64(s.Time)/1e3) > 1e-6 || len(e.Args["nodes"].([]any)) != len(s.Nodes) {
			t.Errorf("event %d is %+v, want step %+v at %g us", i, e, s, at)
		}
		if want := map[bool]int{true: traceHost, false: traceDevice}[s.Where == "host"]; e.Tid != want {
			t.Errorf("event %d is on track %d, want %d", i, e.Tid, want)
		}
		at += e.Dur
	}
	if last := events[len(events)-1]; last.Args["reason"] != "no kernel" || events[0].Args["kernels"] == "" {
		t.Errorf("got %+v, want the reason of the host's and the kernels of others", events)
	}
	report.Steps[0].Time = 0
	if err := report.Trace(&text); err == nil || !strings.Contains(err.Error(), "Timed") {
		t.Errorf("a step without a time: %v, want an error that names Timed", err)
	}
}

package cudaops

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// traceEvent is an event of Chrome's trace format.
type traceEvent struct {
	Name     string         `json:"name"`
	Phase    string         `json:"ph"` // X, of a duration, or M, a name
	Start    float64        `json:"ts"` // microseconds
	Duration float64        `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Args     map[string]any `json:"args"`
}

// Threads of a trace.
const (
	traceHost   = 1
	traceDevice = 2
)

// Trace writes the steps of the last run in Chrome's trace format, which
// https://ui.perfetto.dev and chrome://tracing show: each with its nodes, kernels, bytes and operations.
// Steps run one after the other; each begins where the one before ended, so copies
// between them and gaps are not shown. The VM has to be made with [Timed].
func (r Report) Trace(w io.Writer) error {
	if r.Runs == 0 {
		return fmt.Errorf("cudaops: Trace of a report without a run: call RunAll first")
	}
	events := []traceEvent{named("thread_name", traceHost, "host"), named("thread_name", traceDevice, r.Device)}
	var at time.Duration
	for i, s := range r.Steps {
		if s.Time == 0 && s.Where != "host" {
			return fmt.Errorf("cudaops: Trace: step %d has no time, want a VM that is made with Timed", i+1)
		}
		events = append(events, s.event(at, r.Device))
		at += s.Time
	}
	text, err := json.MarshalIndent(map[string]any{"traceEvents": events, "displayTimeUnit": "ns"}, "", " ")
	if err != nil {
		return fmt.Errorf("cudaops: Trace: %w", err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// event returns a step that begins at a time.
func (s Step) event(at time.Duration, device string) traceEvent {
	e := traceEvent{Name: s.Op, Phase: "X", Start: microseconds(at), Duration: microseconds(s.Time), Process: 1, Thread: traceHost, Args: map[string]any{"nodes": s.Nodes}}
	if s.Where == device {
		e.Thread = traceDevice
		e.Args["kernels"], e.Args["bytes"], e.Args["operations"] = strings.Join(s.Kernels, " "), s.Bytes, s.Flops
	}
	if s.Roofline > 0 {
		e.Args["roofline"] = s.Roofline
	}
	if s.Reason != "" {
		e.Args["reason"] = s.Reason
	}
	return e
}

func named(what string, thread int, name string) traceEvent {
	return traceEvent{Name: what, Phase: "M", Process: 1, Thread: thread, Args: map[string]any{"name": name}}
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

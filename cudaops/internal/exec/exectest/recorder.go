// Package exectest proves, with no GPU, that a program runs there as if its instructions
// ran consecutively: [Check].
package exectest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// Node is a node of a CUDA graph: a launch or a copy, with the memory that it may read and write.
type Node struct {
	What          string
	Reads, Writes []exec.Span
	After         []int // the nodes that it waits for
}

// Recorder is a backend that runs nothing: it records the graphs that would be captured, with the edges that [exec.GPUBackend]
// makes.
type Recorder struct {
	For    kernels.Device
	Graphs [][]Node

	recording *recording // nil if nothing is captured
}

var _ exec.AsyncCopier = (*Recorder)(nil)

// recording is a capturing stream: the next work waits for tail, and then becomes the tail.
type recording struct {
	nodes []Node
	tail  []driver.GraphNode
}

func (r *recording) SetDependencies(nodes []driver.GraphNode) error {
	r.tail = slices.Clone(nodes)
	return nil
}

func (r *recording) Dependencies() ([]driver.GraphNode, error) { return slices.Clone(r.tail), nil }

// queue adds a node.
func (b *Recorder) queue(n Node) error {
	r := b.recording
	if r == nil { // work that is not captured waits for all earlier work
		return nil
	}
	for _, before := range r.tail {
		n.After = append(n.After, int(before))
	}
	r.nodes = append(r.nodes, n)
	r.tail = []driver.GraphNode{driver.GraphNode(len(r.nodes) - 1)}
	return nil
}

func (b *Recorder) Capture(work []exec.Work) (func() error, error) {
	b.recording = new(recording)
	defer func() { b.recording = nil }()
	if err := exec.Record(b.recording, work); err != nil {
		return nil, err
	}
	b.Graphs = append(b.Graphs, b.recording.nodes)
	return func() error { return nil }, nil
}

func (b *Recorder) Bind(p *kernels.Plan, in, out []exec.Span, scratch exec.Span) (func() error, error) {
	nodes := make([]Node, len(p.Launches))
	for i, l := range p.Launches {
		n, err := launched(p, l, in, out, scratch)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Kernel.Entry, err)
		}
		nodes[i] = n
	}
	return func() error {
		for _, n := range nodes {
			b.queue(n)
		}
		return nil
	}, nil
}

// launched returns the node of a launch: it may read all of the operands that its
// arguments point into, and write scratch memory and outputs from there on.
func launched(p *kernels.Plan, l kernels.Launch, in, out []exec.Span, scratch exec.Span) (Node, error) {
	n := Node{What: l.Kernel.Entry + " of " + p.Op}
	for i, a := range l.Args {
		r, ref := a.(kernels.Ref)
		if m, tensor := a.(kernels.TensorMap); tensor {
			r, ref = m.Ref, true
		}
		if !ref || r.Operand == kernels.Arrivals { // of this launch alone
			continue
		}
		var s exec.Span
		switch {
		case r.Operand == kernels.Out:
			k, offset := p.Part(r.Offset)
			s, r.Offset = out[k], offset
		case r.Operand == kernels.Scratch:
			s = scratch
		default:
			s = in[r.Operand]
		}
		if r.Offset < 0 || r.Offset > s.Size {
			return n, fmt.Errorf("argument %d is byte %d of %v, which has %d", i, r.Offset, r.Operand, s.Size)
		}
		if r.Operand >= 0 {
			n.Reads = append(n.Reads, s)
		} else {
			n.Writes = append(n.Writes, exec.Span{Offset: s.Offset + r.Offset, Size: s.Size - r.Offset, Home: s.Home})
		}
	}
	return n, nil
}

func (b *Recorder) Collective(c kernels.Collective, _ []kernels.Dtype, in, out []exec.Span) (func() error, error) {
	return func() error { return b.queue(Node{What: c.String(), Reads: in, Writes: out}) }, nil
}

func (b *Recorder) Upload(to exec.Span, _ []byte) error {
	return b.queue(Node{What: "upload", Writes: []exec.Span{to}})
}

func (b *Recorder) Download(_ []byte, from exec.Span) error {
	return b.queue(Node{What: "download", Reads: []exec.Span{from}})
}

// Stage implements [exec.Backend]. Nothing is copied, so no memory is wanted.
func (b *Recorder) Stage(int64) ([]byte, error) { return []byte{}, nil }
func (b *Recorder) Device() kernels.Device      { return b.For }
func (b *Recorder) Name() string                { return b.For.Name }
func (b *Recorder) Alloc(int64) error           { return nil }

// NewMemory implements [exec.Backend]. No test has programs that share memory.
func (b *Recorder) NewMemory(int64) (program.Memory, error) { return nil, errors.ErrUnsupported }
func (b *Recorder) Clear(exec.Span) error                   { return nil }
func (b *Recorder) Sync() error                             { return nil }
func (b *Recorder) Events(int) error                        { return nil }
func (b *Recorder) Record(int) error                        { return nil }
func (b *Recorder) Elapsed(int, int) (time.Duration, error) { return 0, nil }
func (b *Recorder) Close() error                            { return nil }
func (b *Recorder) MakeEvents(int) error                    { return nil }
func (b *Recorder) RecordWork(int) error                    { return nil }
func (b *Recorder) SyncWork(int) error                      { return nil }
func (b *Recorder) CopyAsync(exec.Span, []byte) error       { return nil }
func (b *Recorder) SyncCopies() error                       { return nil }
func (b *Recorder) RecordCopies(int) error                  { return nil }
func (b *Recorder) WorkWaitsCopies(int) error               { return nil }
func (b *Recorder) SyncCopyEvent(int) error                 { return nil }
func (b *Recorder) CopiesWaitWork(int) error                { return nil }
func (b *Recorder) Pinned([]byte) bool                      { return false }

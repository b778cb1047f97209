package driver

import (
	"errors"
	"slices"
	"unsafe"
)

// Graph is a captured CUDA graph that is launched as a whole.
type Graph struct {
	ctx    *Context
	handle uintptr
}

// Capture makes a graph of the launches and device copies that record queues on its stream, without executing
// them. Waiting for that stream is an error.
//
// With programmatic, edges between two kernels become programmatic if the second waits for its dependencies
// ([Function.WaitsForDependencies]): the second may launch before the first has completed. If the device or the driver does
// not support that, Capture calls record again and keeps full edges.
func (c *Context) Capture(programmatic bool, record func(s *Stream) error) (_ *Graph, err error) {
	recorded, kernels, err := c.record(record)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeHandle(c, &recorded, cuGraphDestroy)) }()
	g := &Graph{ctx: c}
	if programmatic && c.Device.Major >= 9 {
		if c.makeProgrammatic(recorded, kernels) == nil && c.instantiate(g, recorded) == nil {
			return g, nil
		}
		if err := closeHandle(c, &recorded, cuGraphDestroy); err != nil {
			return nil, err
		}
		if recorded, _, err = c.record(record); err != nil {
			return nil, err
		}
	}
	if err := c.instantiate(g, recorded); err != nil {
		return nil, err
	}
	return g, nil
}

// instantiate makes g launchable from a recorded graph.
func (c *Context) instantiate(g *Graph, recorded uintptr) error {
	return c.call(cuGraphInstantiate, uintptr(unsafe.Pointer(&g.handle)), recorded, 0)
}

// record captures a graph, and returns for each of its kernels whether the kernel waits for its dependencies.
func (c *Context) record(record func(s *Stream) error) (graph uintptr, kernels map[GraphNode]bool, err error) {
	// A new non-blocking stream, so that calls elsewhere in the process cannot invalidate the capture. Relaxed mode, so that
	// the capture may end on another OS thread.
	const nonBlocking, relaxed = 1, 2
	s := &Stream{ctx: c, captured: map[GraphNode]bool{}}
	if err := c.call(cuStreamCreate, uintptr(unsafe.Pointer(&s.handle)), nonBlocking); err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := c.call(cuStreamBeginCapture, s.handle, relaxed); err != nil {
		return 0, nil, err
	}
	failure := record(s)
	if err := c.call(cuStreamEndCapture, s.handle, uintptr(unsafe.Pointer(&graph))); err != nil {
		return 0, nil, errors.Join(failure, err)
	}
	if failure != nil {
		return 0, nil, errors.Join(failure, closeHandle(c, &graph, cuGraphDestroy))
	}
	return graph, s.captured, nil
}

// GraphNode is a node of a graph that is being captured.
type GraphNode uintptr

// Dependencies returns the nodes that the next work queued on a capturing stream will wait for. After a launch or a copy
// that is its node.
func (s *Stream) Dependencies() ([]GraphNode, error) {
	var status uint32
	var id uint64
	var graph uintptr
	var nodes *GraphNode // memory of the driver, valid until the next call
	var n uintptr
	err := s.ctx.call(cuStreamCaptureInfo, s.handle, uintptr(unsafe.Pointer(&status)), uintptr(unsafe.Pointer(&id)),
		uintptr(unsafe.Pointer(&graph)), uintptr(unsafe.Pointer(&nodes)), uintptr(unsafe.Pointer(&n)))
	if err != nil || n == 0 {
		return nil, err
	}
	return slices.Clone(unsafe.Slice(nodes, n)), nil
}

// SetDependencies makes the next work queued on a capturing stream wait for nodes and nothing else.
func (s *Stream) SetDependencies(nodes []GraphNode) error {
	const set = 1
	return s.ctx.call(cuStreamSetDependencies, s.handle, uintptr(unsafe.Pointer(unsafe.SliceData(nodes))), uintptr(len(nodes)), set)
}

// LaunchGraph queues the work of g, which also waits for earlier launches of g.
func (s *Stream) LaunchGraph(g *Graph) error { return s.ctx.call(cuGraphLaunch, g.handle, s.handle) }

// Close releases the graph after the device has finished with it. Further calls do nothing.
func (g *Graph) Close() error { return closeHandle(g.ctx, &g.handle, cuGraphExecDestroy) }

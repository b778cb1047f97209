package driver

import (
	"errors"
	"slices"
	"unsafe"
)

// Graph is work that was recorded once and is queued as a whole.
type Graph struct {
	ctx    *Context
	handle uintptr
}

// Capture makes a graph of the launches and device copies that record queues on its stream, without
// running them. Waiting for that stream is an error.
func (c *Context) Capture(record func(s *Stream) error) (_ *Graph, err error) {
	// A stream of its own without order to others, so that calls elsewhere in the process cannot
	// disturb the recording. Relaxed, so that it may end on another OS thread than it began on.
	const nonBlocking, relaxed = 1, 2
	s := &Stream{ctx: c}
	if err := c.call(cuStreamCreate, uintptr(unsafe.Pointer(&s.handle)), nonBlocking); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := c.call(cuStreamBeginCapture, s.handle, relaxed); err != nil {
		return nil, err
	}
	failure := record(s)
	var recorded uintptr
	if err := c.call(cuStreamEndCapture, s.handle, uintptr(unsafe.Pointer(&recorded))); err != nil {
		return nil, errors.Join(failure, err)
	}
	defer func() { err = errors.Join(err, closeHandle(c, &recorded, cuGraphDestroy)) }()
	if failure != nil {
		return nil, failure
	}
	g := &Graph{ctx: c}
	if err := c.call(cuGraphInstantiate, uintptr(unsafe.Pointer(&g.handle)), recorded, 0); err != nil {
		return nil, err
	}
	return g, nil
}

// A GraphNode is a piece of work in a graph that is being captured.
type GraphNode uintptr

// Tail returns the nodes that the next work queued on a capturing stream will wait for: the work that
// was queued last.
func (s *Stream) Tail() ([]GraphNode, error) {
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

// Follow makes the next work that is queued on a capturing stream wait for those nodes
// alone.
func (s *Stream) Follow(nodes []GraphNode) error {
	const set = 1
	return s.ctx.call(cuStreamFollow, s.handle, uintptr(unsafe.Pointer(unsafe.SliceData(nodes))), uintptr(len(nodes)), set)
}

// LaunchGraph queues the work of g; it waits for earlier work of g as well.
func (s *Stream) LaunchGraph(g *Graph) error { return s.ctx.call(cuGraphLaunch, g.handle, s.handle) }

// Close releases the graph, once the device has finished with it. Further calls
// do nothing.
func (g *Graph) Close() error { return closeHandle(g.ctx, &g.handle, cuGraphExecDestroy) }

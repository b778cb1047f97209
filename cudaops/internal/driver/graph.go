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
//
// With early, the device may start kernels that wait by themselves ([Function.WaitsForDependencies]) before the kernels that
// they follow are done, if it and the driver can: else record is called once more, for a graph in which
// all wait.
func (c *Context) Capture(early bool, record func(s *Stream) error) (_ *Graph, err error) {
	recorded, kernels, err := c.record(record)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeHandle(c, &recorded, cuGraphDestroy)) }()
	g := &Graph{ctx: c}
	if early && c.Device.Major >= 9 {
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

// instantiate makes a graph that can be launched of one that was recorded.
func (c *Context) instantiate(g *Graph, recorded uintptr) error {
	return c.call(cuGraphInstantiate, uintptr(unsafe.Pointer(&g.handle)), recorded, 0)
}

// record makes a graph that cannot be launched yet, and says of the kernels in it whether each waits by itself
// for those before it.
func (c *Context) record(record func(s *Stream) error) (graph uintptr, kernels map[GraphNode]bool, err error) {
	// A stream of its own without order to others, so that calls elsewhere in the process cannot
	// disturb the recording. Relaxed, so that it may end on another OS thread than it began on.
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

// A GraphNode is a piece of work in a graph that is being captured.
type GraphNode uintptr

// Dependencies returns the nodes that the next work queued on a capturing stream will wait for: the work that
// was queued last.
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

// SetDependencies makes the next work that is queued on a capturing stream wait for those nodes
// alone.
func (s *Stream) SetDependencies(nodes []GraphNode) error {
	const set = 1
	return s.ctx.call(cuStreamFollow, s.handle, uintptr(unsafe.Pointer(unsafe.SliceData(nodes))), uintptr(len(nodes)), set)
}

// LaunchGraph queues the work of g; it waits for earlier work of g as well.
func (s *Stream) LaunchGraph(g *Graph) error { return s.ctx.call(cuGraphLaunch, g.handle, s.handle) }

// Close releases the graph, once the device has finished with it. Further calls
// do nothing.
func (g *Graph) Close() error { return closeHandle(g.ctx, &g.handle, cuGraphExecDestroy) }

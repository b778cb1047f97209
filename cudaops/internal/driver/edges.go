package driver

import "unsafe"

// edges are edges of a graph before it is instantiated.
type edges struct {
	from, to []GraphNode
	data     []edgeData
}

// edgeData is CUgraphEdgeData: which part of its first node an edge waits for. The zero value stands for all of it.
type edgeData struct {
	port, _, kind uint8
	_             [5]uint8
}

// programmatic is an edge between kernels along which the second one comes to the device once all blocks of the
// first have admitted it or ended. The second waits for the end of the first by an instruction.
var programmatic = edgeData{port: 1, kind: 1} // CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC

// makeProgrammatic makes the edges of a graph from kernels to kernels that wait by themselves programmatic.
func (c *Context) makeProgrammatic(graph uintptr, kernels map[GraphNode]bool) error {
	var n uintptr
	if err := c.call(cuGraphGetEdges, graph, 0, 0, 0, uintptr(unsafe.Pointer(&n))); err != nil || n == 0 {
		return err
	}
	all := edges{make([]GraphNode, n), make([]GraphNode, n), make([]edgeData, n)}
	if err := all.call(c, cuGraphGetEdges, graph, uintptr(unsafe.Pointer(&n))); err != nil {
		return err
	}
	var early edges
	for i, to := range all.to {
		if _, kernel := kernels[all.from[i]]; kernel && kernels[to] {
			early.from, early.to, early.data = append(early.from, all.from[i]), append(early.to, to), append(early.data, all.data[i])
		}
	}
	if len(early.to) == 0 {
		return nil
	}
	if err := early.call(c, cuGraphRemoveEdges, graph, uintptr(len(early.to))); err != nil {
		return err
	}
	for i := range early.data {
		early.data[i] = programmatic
	}
	return early.call(c, cuGraphAddEdges, graph, uintptr(len(early.to)))
}

// call calls one of the functions of edges.
func (e edges) call(c *Context, p *proc, graph, n uintptr) error {
	return c.call(p, graph, uintptr(unsafe.Pointer(unsafe.SliceData(e.from))), uintptr(unsafe.Pointer(unsafe.SliceData(e.to))),
		uintptr(unsafe.Pointer(unsafe.SliceData(e.data))), n)
}

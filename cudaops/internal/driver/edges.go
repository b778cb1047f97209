package driver

import "unsafe"

// edges are edges of a graph before it is instantiated.
type edges struct {
	from, to []GraphNode
	data     []edgeData
}

// edgeData is CUgraphEdgeData: which event of its first node an edge waits for. The zero value is the node's completion.
type edgeData struct {
	port, _, kind uint8
	_             [5]uint8
}

// programmatic is an edge between kernels whose second may launch once every block of the first has called
// griddepcontrol.launch_dependents or exited. The second waits for completion of the first by griddepcontrol.wait.
var programmatic = edgeData{port: 1, kind: 1} // CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC

// makeProgrammatic makes edges between two kernels programmatic if the second waits for its dependencies.
func (c *Context) makeProgrammatic(graph uintptr, kernels map[GraphNode]bool) error {
	var n uintptr
	if err := c.call(cuGraphGetEdges, graph, 0, 0, 0, uintptr(unsafe.Pointer(&n))); err != nil || n == 0 {
		return err
	}
	all := edges{make([]GraphNode, n), make([]GraphNode, n), make([]edgeData, n)}
	if err := all.call(c, cuGraphGetEdges, graph, uintptr(unsafe.Pointer(&n))); err != nil {
		return err
	}
	var changed edges
	for i, to := range all.to {
		if _, kernel := kernels[all.from[i]]; kernel && kernels[to] {
			changed.from, changed.to, changed.data = append(changed.from, all.from[i]), append(changed.to, to), append(changed.data, all.data[i])
		}
	}
	if len(changed.to) == 0 {
		return nil
	}
	if err := changed.call(c, cuGraphRemoveEdges, graph, uintptr(len(changed.to))); err != nil {
		return err
	}
	for i := range changed.data {
		changed.data[i] = programmatic
	}
	return changed.call(c, cuGraphAddEdges, graph, uintptr(len(changed.to)))
}

// call calls one of the functions of edges.
func (e edges) call(c *Context, p *proc, graph, n uintptr) error {
	return c.call(p, graph, uintptr(unsafe.Pointer(unsafe.SliceData(e.from))), uintptr(unsafe.Pointer(unsafe.SliceData(e.to))),
		uintptr(unsafe.Pointer(unsafe.SliceData(e.data))), n)
}

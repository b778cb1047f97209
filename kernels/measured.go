package kernels

// Measured holds a launch policy by architecture: the fastest one where it was measured, a line for each compute capability (90 for 9.0), with the
// measurement beside it and the alternatives it was compared with. Longer lists of slower alternatives are in bench/notes.
type Measured[P any] []struct {
	Capability int
	Policy     P
}

// On returns the policy for a device. An architecture that was not measured takes the nearest line, the earlier of two.
func (m Measured[P]) On(dev Device) P {
	return m[nearest(dev, len(m), func(i int) int { return m[i].Capability })].Policy
}

// nearest returns the number of the line for a device, of n lines. It is apart from On, of which the program has a copy for each type.
func nearest(dev Device, n int, capability func(int) int) (best int) {
	distance := func(i int) int {
		d := 10*dev.Major + dev.Minor - capability(i)
		return max(d, -d)
	}
	for i := range n {
		if distance(i) < distance(best) {
			best = i
		}
	}
	return best
}

// elementBlock is the block size of kernels with one element for each thread that are a small part of their plans.
const elementBlock = 256

// LaunchElements appends a launch with a thread for each of n elements.
func (p *Plan) LaunchElements(k *Kernel, n int64, args ...any) {
	p.Launch(k, int(max(CeilDiv(n, elementBlock), 1)), elementBlock, args...)
}

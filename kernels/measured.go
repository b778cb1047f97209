package kernels

// Measured holds a launch policy by architecture: the fastest one where it was measured, a line for each compute capability (90 for 9.0), with the
// measurement beside it and the alternatives it was compared with. Longer lists of slower alternatives are in bench/notes.
type Measured[P any] []struct {
	Capability int
	Policy     P
}

// On returns the policy for a device. An architecture that was not measured takes the nearest line, the earlier of two.
func (m Measured[P]) On(dev Device) P {
	distance := func(capability int) int {
		d := 10*dev.Major + dev.Minor - capability
		return max(d, -d)
	}
	best := m[0]
	for _, line := range m[1:] {
		if distance(line.Capability) < distance(best.Capability) {
			best = line
		}
	}
	return best.Policy
}

// elementBlock is the block size of kernels with one element for each thread that are a small part of their plans.
const elementBlock = 256

// LaunchElements appends a launch with a thread for each of n elements.
func (p *Plan) LaunchElements(k *Kernel, n int64, args ...any) {
	p.Launch(k, int(max(CeilDiv(n, elementBlock), 1)), elementBlock, args...)
}

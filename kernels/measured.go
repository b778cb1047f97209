package kernels

// Measured holds a launch policy by architecture: the fastest one where it was measured, a line for
// each compute capability (90 for 9.0), with the measurement beside it and the alternatives it was
// compared with. Longer lists of slower alternatives are in bench/notes.
type Measured[P any] []struct {
	Capability int
	Policy     P
}

// On returns the policy for a device. An architecture that was not measured takes the nearest line,
// the earlier of two.
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

// StreamPolicy tunes kernels that stream memory.
type StreamPolicy struct {
	Block   int   // threads a block; the kernels have no grid-stride loop
	Vectors int64 // vectors of 16 bytes that a thread takes
	Few     int64 // elements for each multiprocessor up to which a generated kernel has a thread for each
}

var (
	Streaming = Measured[StreamPolicy]{
		// Few, a thread for each and by vectors: H200, six functions of 2^10 to 2^18 elements, 4.4 to 6.2 us either way; the driver compiles 40 such kernels in half the time
		{90, StreamPolicy{Block: 256, Vectors: 1, Few: 2048}}, // H200, Add of 2^28 float32: 733 us; 2 or 4 vectors 736; 16 blocks an SM that loop 778, 64 of them 765
	}
	Scaling = Measured[StreamPolicy]{
		{90, StreamPolicy{Block: 256, Vectors: 2}}, // H200, Scale of 2^28 float32: 517 us; 1 vector 567, 4 519; blocks that loop 540 at best
	}
)

// ElementBlock is the block size of kernels with one element for each thread that are a small part
// of their plans.
const ElementBlock = 256

// LaunchElements appends a launch with a thread for each of n elements.
func (p *Plan) LaunchElements(k *Kernel, n int64, args ...any) {
	p.Launch(k, int(max(CeilDiv(n, ElementBlock), 1)), ElementBlock, args...)
}

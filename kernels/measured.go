package kernels

// measured holds a launch policy by architecture: the fastest one where it was measured, a line for
// each compute capability (90 for 9.0), with the measurement beside it and the alternatives it was
// compared with. Longer lists of slower alternatives are in bench/notes.
type measured[P any] []struct {
	capability int
	policy     P
}

// on returns the policy for a device. An architecture that was not measured takes the nearest line,
// the earlier of two.
func (m measured[P]) on(dev Device) P {
	distance := func(capability int) int {
		d := 10*dev.Major + dev.Minor - capability
		return max(d, -d)
	}
	best := m[0]
	for _, line := range m[1:] {
		if distance(line.capability) < distance(best.capability) {
			best = line
		}
	}
	return best.policy
}

// streamPolicy tunes kernels that stream memory.
type streamPolicy struct {
	block   int   // threads of a block; blocks come and go, none loops
	vectors int64 // vectors of 16 bytes that a thread takes
	few     int64 // elements for each multiprocessor up to which a generated kernel has a thread for each
}

var (
	streaming = measured[streamPolicy]{
		// Few, a thread for each and by vectors: H200, six functions of 2^10 to 2^18 elements, 4.4 to 6.2 us either way; the driver compiles 40 such kernels in half the time
		{90, streamPolicy{block: 256, vectors: 1, few: 2048}}, // H200, Add of 2^28 float32: 733 us; 2 or 4 vectors 736; 16 blocks an SM that loop 778, 64 of them 765
	}
	scaling = measured[streamPolicy]{
		{90, streamPolicy{block: 256, vectors: 2}}, // H200, Scale of 2^28 float32: 517 us; 1 vector 567, 4 519; blocks that loop 540 at best
	}
)

// elementBlock is the block size of kernels with one element for each thread that are a small part
// of their plans.
const elementBlock = 256

// elements appends a launch with a thread for each of n elements.
func (p *Plan) elements(k *Kernel, n int64, args ...any) {
	p.Launch(k, int(max(CeilDiv(n, elementBlock), 1)), elementBlock, args...)
}

// Package policy has launch policies that several families of kernels share.
package policy

import "github.com/stheno-ml/stheno/kernels"

// ClusterBlocks is the number of blocks of a cluster, the most that every device supports.
const ClusterBlocks = 8

// SectorBytes is the size of the pieces in which memory is read.
const SectorBytes = 32

// Stream tunes kernels that stream memory.
type Stream struct {
	Block   int   // threads a block; the kernels have no grid-stride loop
	Vectors int64 // vectors of 16 bytes that a thread takes
	Few     int64 // elements for each multiprocessor up to which a generated kernel has a thread for each
}

var (
	Streaming = kernels.Measured[Stream]{
		// Few, a thread for each and by vectors: H200, six functions of 2^10 to 2^18 elements, 4.4 to 6.2 us either way; the driver compiles 40 such kernels in half the time
		{90, Stream{Block: 256, Vectors: 1, Few: 2048}}, // H200, Add of 2^28 float32: 733 us; 2 or 4 vectors 736; 16 blocks an SM that loop 778, 64 of them 765
	}
	Scaling = kernels.Measured[Stream]{
		{90, Stream{Block: 256, Vectors: 2}}, // H200, Scale of 2^28 float32: 517 us; 1 vector 567, 4 519; blocks that loop 540 at best
	}
)

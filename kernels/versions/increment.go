package versions

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stheno-ml/stheno/kernels"
)

// IncrementVariants returns the names of the variants of [Increment].
func IncrementVariants() []string {
	return []string{"racy", "racy_shared", "atomic", "mutex", "ticket"}
}

type incrementArgs struct{ Cell, Locks kernels.Ref }

var (
	incrementZero    = library.Kernel("increment", "increment_zero_i32", incrementZeroBody)
	incrementKernels = map[string]*kernels.Kernel{
		"racy":        library.Kernel("increment", "increment_racy_i32", incrementRacyBody),
		"racy_shared": library.Kernel("increment", "increment_racy_shared_i32", incrementRacySharedBody),
		"atomic":      library.Kernel("increment", "increment_atomic_i32", incrementAtomicBody),
		"mutex":       library.Kernel("increment", "increment_mutex_i32", incrementMutexBody),
		"ticket":      library.Kernel("increment", "increment_ticket_i32", incrementTicketBody),
	}
)

// Increment plans a cell, one int32, to which every thread of a grid of blocks adds one: it ends at
// blocks * threads (at most 1024 each block) with the variants "atomic", "mutex" (a lock by
// compare-and-swap) and "ticket" (a lock in the order of requests). The variants "racy" and
// "racy_shared" show why these are needed: they are WRONG ON PURPOSE, end at less, and differ from
// run to run.
func Increment(variant string, blocks, threads int) (*kernels.Plan, error) {
	if !slices.Contains(IncrementVariants(), variant) {
		return nil, fmt.Errorf("versions: increment: got variant %q, want one of %q", variant, IncrementVariants())
	}
	if blocks < 1 || threads < 1 || threads > 1024 {
		return nil, fmt.Errorf("versions: increment: got %d blocks of %d threads, want at least 1 of 1 to 1024", blocks, threads)
	}
	p := &kernels.Plan{Op: fmt.Sprintf("increment_%s(%d x %d)", variant, blocks, threads), Out: 4, Flops: int64(blocks) * int64(threads)}
	locks := p.Workspace(12)
	p.Launch(incrementZero, 1, 1, incrementArgs{out, locks})
	p.Launch(incrementKernels[variant], blocks, threads, incrementArgs{out, locks})
	return p, nil
}

// cellAndLocks returns the operands of the kernels.
func cellAndLocks(c kernels.Call) (cell *int32, locks []int32) {
	args := kernels.Args[incrementArgs](c)
	return &kernels.Slice[int32](c, args.Cell)[0], kernels.Slice[int32](c, args.Locks)
}

func incrementZeroBody(c kernels.Call) {
	cell, locks := cellAndLocks(c)
	*cell = 0
	clear(locks)
}

// eachBlock runs the blocks of a grid at once.
func eachBlock(c kernels.Call, block func()) {
	var wg sync.WaitGroup
	for range c.Grid[0] {
		wg.Go(block)
	}
	wg.Wait()
}

// incrementRacyBody makes the threads of a warp read and write together, as they do on a GPU, and
// lets other blocks run between.
func incrementRacyBody(c kernels.Call) {
	cell, _ := cellAndLocks(c)
	eachBlock(c, func() {
		for range kernels.CeilDiv(int64(c.Block[0]), 32) {
			before := atomic.LoadInt32(cell)
			runtime.Gosched()
			atomic.StoreInt32(cell, before+1)
		}
	})
}

func incrementRacySharedBody(c kernels.Call) {
	cell, _ := cellAndLocks(c)
	eachBlock(c, func() { atomic.AddInt32(cell, int32(kernels.CeilDiv(int64(c.Block[0]), 32))) })
}

func incrementAtomicBody(c kernels.Call) {
	cell, _ := cellAndLocks(c)
	eachBlock(c, func() {
		for range c.Block[0] {
			atomic.AddInt32(cell, 1)
		}
	})
}

func incrementMutexBody(c kernels.Call) {
	cell, locks := cellAndLocks(c)
	eachBlock(c, func() {
		for range c.Block[0] {
			for !atomic.CompareAndSwapInt32(&locks[0], 0, 1) {
				runtime.Gosched()
			}
			*cell++
			atomic.StoreInt32(&locks[0], 0)
		}
	})
}

func incrementTicketBody(c kernels.Call) {
	cell, locks := cellAndLocks(c)
	next, serving := &locks[1], &locks[2]
	eachBlock(c, func() {
		for range c.Block[0] {
			ticket := atomic.AddInt32(next, 1) - 1
			for atomic.LoadInt32(serving) != ticket {
				runtime.Gosched()
			}
			*cell++
			atomic.StoreInt32(serving, ticket+1)
		}
	})
}

package kernels

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// IncrementVariants are the ways of [Increment].
var IncrementVariants = []string{"racy", "racy_shared", "atomic", "mutex", "ticket"}

var (
	incrementZero    = own.Kernel("increment", "increment_zero_i32", func(c Call) { clear(Slice[int32](c, 0)); clear(Slice[int32](c, 1)) })
	incrementKernels = map[string]*Kernel{
		"racy":        own.Kernel("increment", "increment_racy_i32", incrementRacyBody),
		"racy_shared": own.Kernel("increment", "increment_racy_shared_i32", incrementRacySharedBody),
		"atomic":      own.Kernel("increment", "increment_atomic_i32", incrementAtomicBody),
		"mutex":       own.Kernel("increment", "increment_mutex_i32", incrementMutexBody),
		"ticket":      own.Kernel("increment", "increment_ticket_i32", incrementTicketBody),
	}
)

// Increment plans a cell, one int32, to which every thread of a grid of blocks adds
// one: it ends at blocks * threads (at most 1024 each block) by the variants
// "atomic", "mutex" (a lock by compare-and-swap) and "ticket" (a lock in the order
// of asking). The variants "racy" and "racy_shared" show why these are needed: they
// are WRONG ON PURPOSE, end at less, and differ from run to run.
func Increment(variant string, blocks, threads int) (*Plan, error) {
	if !slices.Contains(IncrementVariants, variant) {
		return nil, fmt.Errorf("kernels: increment: got variant %q, want one of %q", variant, IncrementVariants)
	}
	if blocks < 1 || threads < 1 || threads > 1024 {
		return nil, fmt.Errorf("kernels: increment: got %d blocks of %d threads, want at least 1 of 1 to 1024", blocks, threads)
	}
	p := &Plan{Op: fmt.Sprintf("increment_%s(%d x %d)", variant, blocks, threads), Out: 4, Flops: int64(blocks) * int64(threads)}
	locks := p.Workspace(12)
	p.Launch(incrementZero, 1, 1, Ref{Out, 0}, locks)
	p.Launch(incrementKernels[variant], blocks, threads, Ref{Out, 0}, locks)
	return p, nil
}

// eachBlock runs the blocks of a grid at once.
func eachBlock(c Call, block func()) {
	var wg sync.WaitGroup
	for range c.Grid[0] {
		wg.Go(block)
	}
	wg.Wait()
}

// incrementRacyBody has the threads of a warp read and write together, as they do
// on a GPU, and lets other blocks come between.
func incrementRacyBody(c Call) {
	cell := &Slice[int32](c, 0)[0]
	eachBlock(c, func() {
		for range CeilDiv(int64(c.Block[0]), 32) {
			before := atomic.LoadInt32(cell)
			runtime.Gosched()
			atomic.StoreInt32(cell, before+1)
		}
	})
}

func incrementRacySharedBody(c Call) {
	cell := &Slice[int32](c, 0)[0]
	eachBlock(c, func() { atomic.AddInt32(cell, int32(CeilDiv(int64(c.Block[0]), 32))) })
}

func incrementAtomicBody(c Call) {
	cell := &Slice[int32](c, 0)[0]
	eachBlock(c, func() {
		for range c.Block[0] {
			atomic.AddInt32(cell, 1)
		}
	})
}

func incrementMutexBody(c Call) {
	cell, taken := &Slice[int32](c, 0)[0], &Slice[int32](c, 1)[0]
	eachBlock(c, func() {
		for range c.Block[0] {
			for !atomic.CompareAndSwapInt32(taken, 0, 1) {
				runtime.Gosched()
			}
			*cell++
			atomic.StoreInt32(taken, 0)
		}
	})
}

func incrementTicketBody(c Call) {
	cell, next, serving := &Slice[int32](c, 0)[0], &Slice[int32](c, 1)[1], &Slice[int32](c, 1)[2]
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

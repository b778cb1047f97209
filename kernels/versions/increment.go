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
	incrementZero    = incrementKernel("zero", incrementZeroBody)
	incrementKernels = map[string]*kernels.Kernel{
		"racy": incrementKernel("racy", eachBlock(incrementRacy)), "racy_shared": incrementKernel("racy_shared", eachBlock(incrementRacyShared)),
		"atomic": incrementKernel("atomic", eachBlock(incrementAtomic)), "mutex": incrementKernel("mutex", eachBlock(incrementMutex)), "ticket": incrementKernel("ticket", eachBlock(incrementTicket)),
	}
)

func incrementKernel(name string, body func(kernels.Call)) *kernels.Kernel {
	return library.Kernel("increment", "increment_"+name+"_i32", body)
}

// Increment plans a cell, one int32, to which every thread of a grid of blocks adds one: it ends at blocks * threads (at most 1024 each block) with
// the variants "atomic", "mutex" (a lock by compare-and-swap) and "ticket" (a lock in the order of requests). The variants "racy" and "racy_shared"
// show why these are needed: they are WRONG ON PURPOSE, end at less, and differ from run to run.
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

// eachBlock returns the Go body that runs the blocks of a grid at once.
func eachBlock(block func(threads int, cell *int32, locks []int32)) func(kernels.Call) {
	return func(c kernels.Call) {
		cell, locks := cellAndLocks(c)
		var wg sync.WaitGroup
		for range c.Grid[0] {
			wg.Go(func() { block(c.Block[0], cell, locks) })
		}
		wg.Wait()
	}
}

// incrementRacy makes the threads of a warp read and write together, as they do on a GPU, and lets other blocks run between.
func incrementRacy(threads int, cell *int32, _ []int32) {
	for range kernels.CeilDiv(int64(threads), 32) {
		before := atomic.LoadInt32(cell)
		runtime.Gosched()
		atomic.StoreInt32(cell, before+1)
	}
}

func incrementRacyShared(threads int, cell *int32, _ []int32) {
	atomic.AddInt32(cell, int32(kernels.CeilDiv(int64(threads), 32)))
}

func incrementAtomic(threads int, cell *int32, _ []int32) {
	for range threads {
		atomic.AddInt32(cell, 1)
	}
}

func incrementMutex(threads int, cell *int32, locks []int32) {
	for range threads {
		for !atomic.CompareAndSwapInt32(&locks[0], 0, 1) {
			runtime.Gosched()
		}
		*cell++
		atomic.StoreInt32(&locks[0], 0)
	}
}

func incrementTicket(threads int, cell *int32, locks []int32) {
	next, serving := &locks[1], &locks[2]
	for range threads {
		ticket := atomic.AddInt32(next, 1) - 1
		for atomic.LoadInt32(serving) != ticket {
			runtime.Gosched()
		}
		*cell++
		atomic.StoreInt32(serving, ticket+1)
	}
}

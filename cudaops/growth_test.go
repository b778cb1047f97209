package cudaops

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// memories are the bytes that a process holds: of Go's heap, of the machine's memory, and of the device's
// together with all other processes.
type memories struct{ heap, resident, device int64 }

func memoryNow(t *testing.T, gpu *exec.GPUBackend) (m memories) {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	m.heap = int64(s.HeapAlloc)
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		var whole int64
		_, err := fmt.Sscan(string(text), &whole, &m.resident)
		testutil.Do(t, err)
		m.resident *= int64(os.Getpagesize())
	}
	if gpu != nil {
		free, total, err := gpu.Context().MemInfo()
		testutil.Do(t, err)
		m.device = total - free
	}
	return m
}

// A hundred thousand steps, or a few thousand on the host, take no more memory than the first ones.
func TestMemoryOfManySteps(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		steps := 3_000
		var gpu *exec.GPUBackend
		g, x, y, _, w := regression(t)
		vm := testutil.Get[*VM](t)(NewVM(g, on, Train(G.NewAdamSolver(), w), ReadEvery(10)))
		defer vm.Close()
		if can := testutil.Get[bool](t)(vm.Stage(nil)); can {
			gpu = testutil.Get[*exec.GPUBackend](t)(exec.OpenGPU(0))
			defer gpu.Close()
			if steps = 100_000; testing.Short() {
				steps = 1000
			}
		}
		r := rand.New(rand.NewPCG(1, 2))
		var batches []map[*G.Node]G.Value
		for k := range 8 {
			b := map[*G.Node]G.Value{x: random(r, x), y: random(r, y)}
			if k%2 == 0 {
				b[x] = testutil.Get[*tensor.Dense](t)(Pinned(tensor.Float32, x.Shape()...))
				copy(b[x].Data().([]float32), random(r, x).Data().([]float32))
			}
			batches = append(batches, b)
		}
		run := func(steps int) {
			for i := range steps {
				for n, v := range batches[i%8] {
					testutil.Do(t, G.Let(n, v))
				}
				testutil.Do(t, vm.RunAll())
				if i%3 > 0 { // others are not staged
					testutil.Get[bool](t)(vm.Stage(batches[(i+1)%8]))
				}
			}
		}
		run(500)
		const parts = 10
		first := memoryNow(t, gpu)
		last, grew := first, 0 // parts in which the device's memory did: all of them, if it is us
		for range parts {
			run(steps / parts)
			now := memoryNow(t, gpu)
			if now.device > last.device {
				grew++
			}
			last = now
		}
		t.Logf("after %d steps: heap %+d bytes, resident %+d, device %+d", steps, last.heap-first.heap, last.resident-first.resident, last.device-first.device)
		if grown := last.heap - first.heap; grown > 256<<10 {
			t.Errorf("Go's heap grew by %d bytes in %d steps", grown, steps)
		}
		if grown := last.resident - first.resident; grown > 32<<20 {
			t.Errorf("the process grew by %d bytes in %d steps", grown, steps)
		}
		if grown := last.device - first.device; grew == parts && grown > 0 {
			t.Errorf("the device's memory in use grew by %d bytes in %d steps", grown, steps)
		}
	})
}

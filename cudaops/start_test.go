package cudaops

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

const firstStep = "TEST_OF_FIRST_STEP"

// TestFirstStep is the process that BenchmarkFirstStep times.
func TestFirstStep(t *testing.T) {
	if os.Getenv(firstStep) == "" {
		t.Skip("a part of BenchmarkFirstStep")
	}
	g, learnables := perceptronGraph(128)
	start := time.Now()
	vm, err := NewVM(g, OnAny(), Train(benchmarked["SGD"](), learnables...))
	testutil.Do(t, err)
	made := time.Since(start)
	testutil.Do(t, vm.RunAll())
	fmt.Println(firstStep, made.Microseconds(), time.Since(start).Microseconds())
	testutil.Do(t, vm.Close())
}

// BenchmarkFirstStep is the time from NewVM to the end of the first step of a perceptron's training, the
// driver's start included: each in a process of its own, where the driver's cache of compiled kernels is empty
// and where it is not.
func BenchmarkFirstStep(b *testing.B) {
	self := testutil.Get[string](b)(os.Executable())
	for name, env := range map[string][]string{
		"cold": {"CUDA_CACHE_DISABLE=1"}, "warm": {"CUDA_CACHE_DISABLE=0", "CUDA_CACHE_PATH=" + b.TempDir()},
	} {
		b.Run(name, func(b *testing.B) {
			child := func() (made, step float64) {
				c := exec.Command(self, "-test.run", "^TestFirstStep$", "-test.v")
				c.Env = append(append(os.Environ(), env...), firstStep+"=1")
				out := string(testutil.Get[[]byte](b)(c.CombinedOutput()))
				_, times, _ := strings.Cut(out, firstStep)
				if n, err := fmt.Sscan(times, &made, &step); n != 2 {
					b.Fatalf("%v: %s", err, out)
				}
				return made / 1e3, step / 1e3
			}
			if name == "warm" {
				child()
			}
			var made, step float64
			for b.Loop() {
				m, s := child()
				made, step = made+m, step+s
			}
			b.ReportMetric(made/float64(b.N), "ms-NewVM")
			b.ReportMetric(step/float64(b.N), "ms-first-step")
		})
	}
}

package bench

import (
	"os"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/graphspec"
	"github.com/stheno-ml/stheno/internal/must"
	"github.com/stheno-ml/stheno/kernels"
)

// What loading the kernels of one program takes, in a process of its own for each of them: a product of two matrices of
// 1024 x 1024 elements, or with STHENO_LOAD=step a training step of a perceptron.
func TestLoadTime(t *testing.T) {
	if os.Getenv("STHENO_LOAD") == "" {
		t.Skip("SKIPPED, NOT TIMED: STHENO_LOAD is not set")
	}
	start := time.Now()
	b := must.Get[*exec.GPUBackend](t)(exec.OpenGPU(0))
	t.Logf("opened in %v", time.Since(start))
	start = time.Now()
	if os.Getenv("STHENO_LOAD") == "step" {
		s, r, values := graphspec.Steps()[0], random(t), make([]float32, 1<<16)
		for i := range values {
			values[i] = r.Float32()*2 - 1
		}
		in := s.Program(s.Values(values))
		start = time.Now()
		must.Get[*GraphTiming](t)(timeGraph(b, in.Graph, &Training{Solver: s.Solver(), Learnables: in.Learnables}, 5, time.Millisecond))
	} else {
		p := kernels.MatMul(b.Device(), kernels.Float32, 1, 1024, 1024, 1024, false, false)
		if os.Getenv("STHENO_LOAD") == "small" {
			p = kernels.MatMul(b.Device(), kernels.Float32, 1, 256, 256, 256, false, false)
		}
		sizes := p.Inputs
		must.Do(t, Run(0, p, [][]byte{make([]byte, sizes[0]), make([]byte, sizes[1])}, make([]byte, p.Out)))
	}
	l := b.Loading()
	t.Logf("%s: all in %v; %d modules, code %v, driver %v", os.Getenv("STHENO_LOAD"), time.Since(start), l.Modules, l.Code, l.Driver)
}

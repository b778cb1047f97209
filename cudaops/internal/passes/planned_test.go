package passes_test

import (
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// The image of matmuls, the largest of a GPT's step, is known before the first pass, and Planned is called with all plans of the program.
func TestPlanned(t *testing.T) {
	sizes := map[kernels.Image]int{}
	for _, by := range []kernels.Precision{kernels.FullPrecision, kernels.TF32, kernels.BF16} {
		g, _ := trained(t, 1, 768, 12, 512, 8, 256)
		p := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Precision: by})).Program
		target := passes.Target{Device: passes.H200}
		if by == kernels.BF16 {
			target.Mixed = by
		}
		plans := map[*kernels.Plan]bool{}
		target.Planned = func(p *kernels.Plan) { plans[p] = true }
		early := map[kernels.Image]bool{}
		testutil.Do(t, passes.Run(p, target, func(pass string, _ *program.Program) error {
			if pass == "prune" {
				for p := range plans {
					for _, x := range p.Launches {
						early[x.Kernel.Image] = true
					}
				}
			}
			return nil
		}))
		var largest kernels.Image
		most := 0
		for _, plan := range p.Plans() {
			if !plans[plan] {
				t.Errorf("%v: Planned was not called with the plan of %s", by, plan.Op)
			}
			for _, x := range plan.Launches {
				image := x.Kernel.Image
				if sizes[image] == 0 {
					sizes[image] = len(testutil.Get[kernels.Code](t)(image.Code(9, 0)).Text)
				}
				if sizes[image] > most {
					largest, most = image, sizes[image]
				}
			}
		}
		if !early[largest] {
			t.Errorf("%v: image %s of %d bytes is not known before the passes", by, largest.Name(), most)
		}
	}
}

package main

import (
	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/maintain/records"
)

// benchSteps times whole training steps.
type benchSteps struct {
	selection
	timing
	onDevice
	JSON string `name:"json" xor:"json" placeholder:"FILE" type:"path" help:"Also write the results to this file; in a folder, to one named after the GPU."`
}

func (benchSteps) Help() string {
	return `Training steps of programs as users of Gorgonia write them, in one machine with the option cudaops.Train:
forward, loss, backward and the solver's update. A line a step, as soon as it is measured:

  time      the median of the launches of a step, by the GPU's clock, steps back to back;
            with the batch from the host, of a step in a loop of package train
  rate      operations, or bytes that must be moved, by that time
  of copy   the rate as a share of the one at which the GPU copies its memory
  checked   how many steps were held against those of the host backend
  error     how far a learnable is off, as a share of the error that is allowed

then the launches of a step, and the time of a call of RunAll, one after the other, the loss read
after every tenth.`
}

// Run times the steps.
func (b benchSteps) Run(c *console) error {
	return timeOnGPU(c, records.Steps, b.selection, b.timing, maintain.Cases(records.Steps), b.device(), b.JSON, "training steps are timed on one")
}

// Several GPUs trains one network on several devices: the step that all make together, its timeline on each device, and the batch from which on
// more devices do more work.
//
//	go run ./examples/12-several-gpus
//	go run ./examples/12-several-gpus -html out.html
//
// It reads like a notebook: network.go is the network and the option of its ranks, timeline.go reads the trace of a step, scaling.go times
// steps. With two GPUs and NVIDIA's NCCL it runs on them. Everywhere else it runs on two ranks on the host, which run the same program but
// share its cores. It fails if the ranks do not end with the parameters of one device at the whole batch.
package main

import (
	"embed"
	"fmt"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
)

//go:embed *.go
var files embed.FS

const title = "Several GPUs: one step on all of them"

func main() { notebook.Main(title, files, run) }

// story is the page and its subjects.
type story struct {
	*notebook.Page
	ranks int
	all   cudaops.Option // of all ranks
	where string         // what runs a rank, for captions
	width int            // numbers of a layer
}

func run(p *notebook.Page) {
	s := &story{Page: p, ranks: 2, all: cudaops.OnHosts(2), where: "ranks on the host, " + p.Where(), width: p.Size(4096, 512, 48)}
	if p.GPU() != nil {
		if list, err := cudaops.Devices(); err == nil && len(list) > 1 {
			s.ranks, s.all, s.where = len(list), cudaops.AllDevices(), fmt.Sprintf("%d x %s", len(list), p.Where())
		}
	}
	together(s)
	timelines(s)
	scaling(s)
	s.Heading("What we learnt")
	s.Text(`Each device computes with its own rows, and one operation, the all-reduce of the gradients, makes the devices one. Its time depends on the number of parameters, that of the rest of the step on the rows, too. While the gradients
		of the first layers are computed, those of the last ones travel, so the all-reduce costs little as long as it takes less time than the backward pass. Scaling ends where that no longer holds: at small batches a device, with many parameters, and
		over connections slower than those between the GPUs of one host. [docs/several-gpus.md](../../docs/several-gpus.md) has measurements, several machines, and the options that halve what travels or divide the solver's state.`)
}

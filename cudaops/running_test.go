package cudaops_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
)

func ExampleDevices() {
	devices, err := stheno.Devices()
	for _, d := range devices {
		fmt.Println(d) // name, number, compute capability, memory, driver
	}
	fmt.Println(err) // why there is none
}

// network is a layer and its gradients.
func network() (*G.ExprGraph, G.Nodes) {
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float32, G.WithShape(256, 128), G.WithName("x"), G.WithInit(G.Ones()))
	w := G.NewMatrix(g, G.Float32, G.WithShape(128, 64), G.WithName("w"), G.WithInit(G.GlorotN(1)))
	loss := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Tanh(G.Must(G.Mul(x, w))))))))
	if _, err := G.Grad(loss, w); err != nil {
		panic(err)
	}
	return g, G.Nodes{w}
}

func ExampleVM_Memory() {
	g, learnables := network()
	vm, err := cudaops.NewVM(g, cudaops.OnHost(), cudaops.Train(G.NewAdamSolver(), learnables...))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer vm.Close()
	fmt.Print(vm.Memory())
	// Output:
	// parameters     32.0 KiB
	// solver         64.0 KiB
	// constants           0 B
	// inputs        128.2 KiB
	// activations   128.2 KiB
	// workspace           0 B
	// peak          352.5 KiB
	// reserved      352.5 KiB
	// the peak is at 8: square(tanh(%2)), Σ[0 1](square(%3)), ÷ false(Σ[0 1](%4), ⊙ false(%6, %7)), …
}

func ExampleTrace() {
	g, _ := network()
	file, err := os.CreateTemp("", "trace*.json") // for ui.perfetto.dev
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove(file.Name())
	defer file.Close()
	vm, err := cudaops.NewVM(g, cudaops.OnHost(), cudaops.Trace(file))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(vm.RunAll(), vm.Close())
	// Output: <nil> <nil>
}

func ExampleVM_RunContext() {
	g, _ := network()
	vm, err := cudaops.NewVM(g, cudaops.OnHost())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer vm.Close()
	ctx, cancel := context.WithDeadline(context.Background(), time.Now()) // too early
	defer cancel()
	err = vm.RunContext(ctx)
	fmt.Println(err)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), vm.RunAll())
	// Output:
	// cudaops: the run was cancelled: context deadline exceeded
	// true <nil>
}

// The code and the output in docs/running.md are those of these examples.
func TestRunningDocument(t *testing.T) {
	testutil.CheckDocument(t, "../docs/running.md", "running_test.go", 5)
}

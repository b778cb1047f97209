// Atomics shows what goes wrong when threads change one number in memory, what
// makes it right, and how to do that fast: the counting of letters in a text.
//
//	go run ./examples/04-atomics
//	go run ./examples/04-atomics -text book.txt -html atomics.html
//
// It reads like a notebook: text.go gets the text, addone.go counts to 160,
// histogram.go counts letters, sweep.go looks for the best grid, scale.go takes
// larger data and dot.go has all blocks meet at one sum. Without a GPU it runs the kernels' Go bodies and shows the figures
// recorded on a GPU.
package main

import (
	_ "embed"
	"flag"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/examples/internal/opticks"
)

//go:embed recorded.json
var recorded []byte

const title = "Atomics: from a lost update to a histogram at the speed of memory"

func main() {
	path := flag.String("text", "", "text whose letters are counted, repeated to 5.8 MB (Newton's Opticks from Go's sources without)")
	notebook.Main(title, recorded, func(p *notebook.Page) error { return run(p, *path) })
}

func run(p *notebook.Page, path string) error {
	size := p.Timed(5_800_000, 200_000)
	text, err := load(path, size, opticks.Path)
	if err != nil {
		return err
	}
	for _, section := range []func(*notebook.Page) error{addOne, waiting} {
		if err := section(p); err != nil {
			return err
		}
	}
	for _, section := range []func(*notebook.Page, letters) error{count, asOp, bars, sweep, scale} {
		if err := section(p, text); err != nil {
			return err
		}
	}
	return dot(p)
}

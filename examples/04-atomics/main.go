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
	"embed"
	"flag"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
)

//go:embed recorded.json
var files embed.FS

const title = "Atomics: from a lost update to a histogram at the speed of memory"

func main() {
	path := flag.String("text", "", "text whose letters are counted, repeated to 5.8 MB (Newton's Opticks from Go's sources without)")
	notebook.Main(title, files, func(p *notebook.Page) { run(p, *path) })
}

func run(p *notebook.Page, path string) {
	size := p.Timed(5_800_000, 200_000)
	text := notebook.Must(load(path, size))
	addOne(p)
	waiting(p)
	count(p, text)
	asOp(p, text)
	bars(p, text)
	sweep(p, text)
	scale(p, text)
	dot(p)
}

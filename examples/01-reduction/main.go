// Reduction adds up a billion numbers, and a matrix of 20000 x 20000, in the
// ways that one thinks of first and in those that keep a GPU's memory busy.
//
//	go run ./examples/01-reduction
//	go run ./examples/01-reduction -html out.html
//
// It reads like a notebook: sums.go goes from the first kernel to the fast one,
// generated.go to kernels made of an expression, lengths.go asks from how many
// numbers on the kernel matters, matrix.go adds up in two dimensions, ripple.go
// draws the effect of a missing barrier. Without a GPU it runs the kernels' Go bodies on
// less and shows the times recorded on a GPU.
package main

import (
	"embed"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
)

//go:embed recorded.json
var files embed.FS

const title = "Reduction: from a billion numbers to one"

func main() { notebook.Main(title, files, run) }

func run(p *notebook.Page) {
	sums(p)
	lengths(p)
	matrix(p)
	ripple(p)
}

// Text trains a network to write: it reads a book letter by letter, guesses each next letter, and what it writes
// looks more and more like the book.
//
//	go run ./examples/08-text
//	go run ./examples/08-text -text book.txt -steps 2000 -html out.html
//
// It reads like a notebook: text.go gets the text, count.go counts letters for something to compare
// with, model.go is the network, train.go trains it, write.go writes with it. The text is Isaac
// Newton's Opticks, which comes with Go's sources; -text takes any other one. Without a GPU it
// runs on the host, with a smaller network. It fails if the network does not guess
// better than who knows the last two letters and how often each followed them.
package main

import (
	"embed"
	"flag"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/command"
)

//go:embed *.go
var files embed.FS

const title = "A text, letter by letter: a recurrent network learns to write"

// options are the flags of this program alone.
type options struct {
	text  string
	steps int
	seed  uint64
}

func main() {
	var o options
	flag.StringVar(&o.text, "text", "", "text to learn, 100 KB at least (Newton's Opticks from Go's sources without)")
	flag.IntVar(&o.steps, "steps", 0, "steps of the training (0: as many as suit the machine)")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the weights, the order of the lines and what is written")
	notebook.Main(title, files, func(p *notebook.Page) { run(p, o) })
}

// A story is the page and its subjects.
type story struct {
	*notebook.Page
	options
	sizes
	text   text
	counts []float64 // bits a letter by counting: with no letter before, with one, ...
	net    *network
	points []point

	dropout float64 // share that is hidden in training; a small network has too few parameters to learn a book by heart
}

// sizes are those of the network and its training.
type sizes struct {
	hidden int // numbers that the network remembers
	lines  int // of a batch
	length int // letters of a line
}

func run(p *notebook.Page, o options) {
	s := &story{Page: p, options: o, sizes: sizes{p.Size(512, 128, 24), p.Size(64, 32, 16), p.Size(64, 32, 8)}}
	if p.GPU() != nil {
		s.dropout = 0.3
	}
	if s.steps == 0 {
		s.steps = p.Size(3000, 400, 120)
	}
	if s.steps < 1 {
		notebook.Check(command.Misused("-steps is %d, want at least 1", s.steps))
	}
	s.text = notebook.Must(load(o.text))
	if p.Small() {
		s.text.cut(60_000)
	}
	reading(s)
	counting(s)
	program(s)
	training(s)
	surprises(s)
	learnt(s)
}

// learnt prints the lesson.
func learnt(s *story) {
	s.Heading("What we learnt")
	first, last := s.points[0], s.points[len(s.points)-1]
	s.Text(`The network began with no idea of letters, words or lines, and learnt all of it from guessing alone. A letter costs %s bits at first and %s at the end: as if it chose among %s equally likely letters instead of %s. What it
		writes has words of the book's, and words that could be; it has no sense, for that is further away than the network looks.`, bits(first.held), bits(last.held), choices(last.held), choices(first.held))
}

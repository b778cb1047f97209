// Convnet trains a convolutional network to read handwritten digits, those of the
// quickstart, from several seeds, and looks at what it gets wrong and what it sees.
//
//	go run ./examples/07-convnet
//	go run ./examples/07-convnet -seeds 1 -html out.html
//
// It reads like a notebook: data.go distorts the images, model.go is the network,
// train.go trains it, look.go shows its mistakes and its filters. Without a GPU it runs on
// the host. It fails if fewer than 98.5 % of the digits that were held out are right, over all
// seeds.
package main

import (
	"embed"
	"flag"
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/command"
)

//go:embed *.go
var files embed.FS

const title = "A convolutional network: from neighbouring pixels to digits"

// options are the flags of this program alone.
type options struct{ seeds, epochs int }

func main() {
	var o options
	flag.IntVar(&o.seeds, "seeds", 3, "networks to train, each from a seed of its own; one with -small")
	flag.IntVar(&o.epochs, "epochs", 30, "passes over the images of a training; 2 with -small")
	notebook.Main(title, files, func(p *notebook.Page) { run(p, o) })
}

// A story is the page and its subjects.
type story struct {
	*notebook.Page
	options
	want float64 // share of the held-out digits that must be right, over all seeds
	all  digits.Set
	nets []*trained // one of each seed
}

func run(p *notebook.Page, o options) {
	if o.seeds < 1 || o.epochs < 1 {
		notebook.Check(command.Misused("-seeds is %d and -epochs %d, want at least 1", o.seeds, o.epochs))
	}
	s := &story{Page: p, options: o, want: 0.985}
	if p.Small() {
		s.options, s.want = options{1, 2}, 0.7
	}
	s.all = notebook.Must(digits.Load())
	data(s)
	program(s)
	training(s)
	mistakes(s)
	filters(s)
	launches(s)
	learnt(s)
}

// learnt prints the lesson.
func learnt(s *story) {
	s.Heading("What we learnt")
	drawings := s.nets[0].training.Len()
	s.Text(`A convolution has few parameters and uses each of them everywhere in the image. Distortion teaches what does not matter: a training of %d images read %d.`, drawings, s.nets[0].history.Steps*images)
	if len(s.nets) > 1 {
		s.Text("And one accuracy is not a result: networks that differ in their seeds alone make %s mistakes.", s.counts())
	}
}

// counts lists the numbers of mistakes: 3, 1 and 4.
func (s *story) counts() string {
	var counts []string
	for _, n := range s.nets {
		counts = append(counts, fmt.Sprint(len(n.wrong)))
	}
	last := len(counts) - 1
	return strings.Join(counts[:last], ", ") + " and " + counts[last]
}

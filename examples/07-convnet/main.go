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
	_ "embed"
	"flag"
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/command"
)

const title = "A convolutional network: from neighbouring pixels to digits"

// options are the flags of this program alone.
type options struct{ seeds, epochs int }

func main() {
	var o options
	flag.IntVar(&o.seeds, "seeds", 3, "networks to train, each from a seed of its own; one with -small")
	flag.IntVar(&o.epochs, "epochs", 30, "passes over the images of a training; 2 with -small")
	notebook.Main(title, nil, func(p *notebook.Page) error { return run(p, o) })
}

// A story is the page and its subjects.
type story struct {
	*notebook.Page
	options
	want float64 // share of the held-out digits that must be right, over all seeds
	all  digits.Set
	nets []*trained // one of each seed
}

func run(p *notebook.Page, o options) (err error) {
	if o.seeds < 1 || o.epochs < 1 {
		return command.Misused("-seeds is %d and -epochs %d, want at least 1", o.seeds, o.epochs)
	}
	s := &story{Page: p, options: o, want: 0.985}
	if p.Small() {
		s.options, s.want = options{1, 2}, 0.7
	}
	if s.all, err = digits.Load(); err != nil {
		return err
	}
	for _, section := range []func(*story) error{data, program, training, mistakes, filters, launches, learnt} {
		if err := section(s); err != nil {
			return err
		}
	}
	return nil
}

// learnt prints the lesson.
func learnt(s *story) error {
	s.Heading("What we learnt")
	drawings := s.nets[0].training.Len()
	s.Text(`A convolution has few parameters and uses each of them everywhere in the image. Distortion teaches what does not matter: a training of %d images read %d.`, drawings, s.nets[0].history.Steps*images)
	if len(s.nets) > 1 {
		s.Text("And one accuracy is not a result: networks that differ in their seeds alone make %s mistakes.", s.counts())
	}
	return nil
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

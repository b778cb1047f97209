package main

import (
	"bytes"
	"fmt"

	"github.com/stheno-ml/stheno/examples/internal/opticks"
	"github.com/stheno-ml/stheno/kernels"
)

// letters is a text and its description.
type letters struct {
	bytes []byte
	from  string
	given bool // from -text rather than the standard one
}

// load reads a text and repeats it to size bytes. Without a path and without the Opticks it takes the
// CUDA sources, with a note that it does.
func load(path string, size int) (letters, error) {
	text, from, err := opticks.Read(path, 1)
	if err != nil && path == "" {
		from = fmt.Sprintf("the CUDA sources of this module, since NEWTON'S OPTICKS WAS NOT FOUND (%v)", err)
		text, err = sources()
	}
	if err != nil {
		return letters{}, err
	}
	return letters{bytes.Repeat(text, size/len(text)+1)[:size], from, path != "" && from != opticks.Name}, nil
}

// sources returns a text that is always available.
func sources() (text []byte, err error) {
	for _, name := range []string{"histogram.cu", "sum.cu", "matmul.cu", "windowsum.cu"} {
		source, err := kernels.Source(name)
		if err != nil {
			return nil, err
		}
		text = append(text, source...)
	}
	return text, nil
}

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stheno-ml/stheno/examples/internal/opticks"
	"github.com/stheno-ml/stheno/kernels"
)

// letters is a text and its description.
type letters struct {
	bytes []byte
	from  string
	given bool // from -text rather than the standard one
}

// load reads a text and repeats it to size bytes. Without a path it takes the one that standard
// finds or, with a note that there is none, the built-in text.
func load(path string, size int, standard func() (string, error)) (letters, error) {
	repeated := func(text []byte) []byte { return bytes.Repeat(text, size/len(text)+1)[:size] }
	given := path != ""
	if !given {
		found, err := standard()
		if err != nil {
			from := fmt.Sprintf("the CUDA sources of this module, since NEWTON'S OPTICKS WAS NOT FOUND (%v; -text chooses another text)", err)
			text, err := builtIn()
			if err != nil {
				return letters{}, err
			}
			return letters{repeated(text), from, false}, nil
		}
		path = found
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return letters{}, err
	}
	if len(text) == 0 {
		return letters{}, fmt.Errorf("-text %s is empty", path)
	}
	if !given || opticks.Is(text) { // a copy is the standard text wherever it lies
		return letters{repeated(text), opticks.Name, false}, nil
	}
	return letters{repeated(text), "the file " + filepath.Base(path), true}, nil
}

// builtIn returns a text that is always available.
func builtIn() ([]byte, error) {
	var text []byte
	for _, name := range []string{"histogram.cu", "sum.cu", "matmul.cu", "windowsum.cu"} {
		source, err := kernels.Builtin().Source(name)
		if err != nil {
			return nil, err
		}
		text = append(text, source...)
	}
	return text, nil
}

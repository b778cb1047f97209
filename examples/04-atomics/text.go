package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
)

// letters is a text and what it is.
type letters struct {
	bytes []byte
	from  string
	given bool // by -text
}

// load reads a text and repeats it to size bytes. Without a path it takes the one
// that standard finds, or says that there is none and takes a text that is built in.
func load(path string, size int, standard func() (string, error)) (letters, error) {
	var text []byte
	from, given := "the file "+filepath.Base(path), path != ""
	if path == "" {
		from = "Isaac Newton's Opticks (1704), which comes with Go's sources"
		var err error
		if path, err = standard(); err != nil {
			from = fmt.Sprintf("the CUDA sources of this module, since NEWTON'S OPTICKS WAS NOT FOUND (%v; -text chooses another text)", err)
			if text, err = builtIn(); err != nil {
				return letters{}, err
			}
		}
	}
	if text == nil {
		var err error
		if text, err = os.ReadFile(path); err != nil {
			return letters{}, err
		}
	}
	if len(text) == 0 {
		return letters{}, fmt.Errorf("-text %s is empty", path)
	}
	return letters{bytes.Repeat(text, size/len(text)+1)[:size], from, given}, nil
}

// goText is the path of Newton's Opticks in Go's sources.
func goText() (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	path := filepath.Join(strings.TrimSpace(string(root)), "src", "testdata", "Isaac.Newton-Opticks.txt")
	_, err = os.Stat(path)
	return path, err
}

// builtIn is a text that is always there.
func builtIn() ([]byte, error) {
	var text []byte
	for _, name := range []string{"histogram.cu", "sum.cu", "matmul.cu", "windowsum.cu"} {
		source, err := kernels.Source(name)
		if err != nil {
			return nil, err
		}
		text = append(text, source...)
	}
	return text, nil
}

package main

import (
	"bytes"
	"crypto/sha256"
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
	given bool // by -text, and not the standard one
}

// opticks is what the standard text is, and opticksSum its SHA-256: a copy of it is
// the standard text wherever it lies.
const (
	opticks    = "Isaac Newton's Opticks (1704), which comes with Go's sources"
	opticksSum = "d4a9ac22462b35e7821a4f2706c211093da678620a8f9997989ee7cf8d507bbd"
)

// load reads a text and repeats it to size bytes. Without a path it takes the one
// that standard finds, or says that there is none and takes a text that is built in.
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
	if !given || fmt.Sprintf("%x", sha256.Sum256(text)) == opticksSum {
		return letters{repeated(text), opticks, false}, nil
	}
	return letters{repeated(text), "the file " + filepath.Base(path), true}, nil
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
		source, err := kernels.Builtin().Source(name)
		if err != nil {
			return nil, err
		}
		text = append(text, source...)
	}
	return text, nil
}

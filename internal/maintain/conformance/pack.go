package main

import (
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/stheno-ml/stheno/kernels"
)

// pack puts the programs, the files that they read, and this program into a folder.
func pack(suites []suite, tree, to string) error {
	for _, s := range suites {
		for _, f := range s.files {
			if err := copyAll(filepath.Join(s.folder(tree), f), filepath.Join(s.folder(to), f)); err != nil {
				return err
			}
		}
		if err := copyAll(s.binary(tree), s.binary(to)); err != nil {
			return err
		}
	}
	if err := digits(filepath.Join(to, "gorgonia", "examples", "testdata", "mnist")); err != nil {
		return err
	}
	self := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(to, "conformance"), "./internal/maintain/conformance")
	self.Env = append(os.Environ(), "CGO_ENABLED=0")
	self.Stderr = os.Stderr
	return self.Run()
}

// makeWeights writes small random numbers in place of the files of weights that are not there: a packed folder has none.
func (s suite) makeWeights(tree string) error {
	for name, size := range s.weights {
		path := filepath.Join(s.folder(tree), filepath.FromSlash(name))
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		r, numbers := rand.New(rand.NewPCG(1, 0)), make([]float32, size/4)
		for i := range numbers {
			numbers[i] = float32(math.Abs(r.NormFloat64()) / 20)
		}
		if err := writeFile(path, kernels.Bytes(numbers)); err != nil {
			return err
		}
	}
	return nil
}

// copyAll copies a file, or a folder with all that is in it.
func copyAll(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := writeFile(to, text); err != nil {
		return err
	}
	return os.Chmod(to, info.Mode())
}

package kernels

import (
	"io/fs"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// Files and names of the package that its external tests read.
var Files fs.FS = sourced{}

type Compiled = compiled

const WaitOperation = waitOperation

func ReadImage(l *Library, stem, target string) ([]byte, error) { return l.readImage(stem, target) }

func SourceOf(l *Library, stem string) (*manifest.Source, error) { return l.source(stem) }

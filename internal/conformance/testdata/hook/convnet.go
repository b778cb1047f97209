package program

import (
	"os"

	G "gorgonia.org/gorgonia"
)

// dropout is Gorgonia's, or nothing where none is wanted: what follows from random numbers
// cannot be compared.
func dropout(x *G.Node, p float64) (*G.Node, error) {
	if os.Getenv("STHENO_CONFORMANCE_DROPOUT") == "none" {
		return x, nil
	}
	return G.Dropout(x, p)
}

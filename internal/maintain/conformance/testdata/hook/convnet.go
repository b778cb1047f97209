package main

import (
	"os"

	G "gorgonia.org/gorgonia"
)

// dropout is Gorgonia's, or none where values are compared: those that depend on random numbers
// cannot be.
func dropout(x *G.Node, p float64) (*G.Node, error) {
	if os.Getenv("STHENO_CONFORMANCE_DROPOUT") == "none" {
		return x, nil
	}
	return G.Dropout(x, p)
}

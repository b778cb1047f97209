//go:build cuda

package cudaops

// With the tag, kernels for Gorgonia's own machine are registered whichever of
// Stheno's packages a program imports.
import _ "github.com/stheno-ml/stheno/cudaops/tape"

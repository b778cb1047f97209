//go:build stheno_ptx || !(stheno_sm70 || stheno_sm80 || stheno_sm90 || stheno_sm100 || stheno_sm120)

package kernels

import (
	"embed"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

//go:embed images/*.ptx.*
var ptx embed.FS

func init() { embedded[manifest.PTX] = ptx }

//go:build !(stheno_sm70 || stheno_sm80 || stheno_sm90 || stheno_sm100 || stheno_sm120)

package kernels

import "embed"

//go:embed images/*.tests.lz
var tests embed.FS

func init() { testImages = tests }

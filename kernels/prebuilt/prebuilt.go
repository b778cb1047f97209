// Package prebuilt holds generated kernels that many programs need, assembled beforehand: an archive
// for each target, made by the program in cudaops/internal/prebuilt.
package prebuilt

import "embed"

// Files are the archives, such as sm_80.archive.
//
//go:embed *.archive
var Files embed.FS

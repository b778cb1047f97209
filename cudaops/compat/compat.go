// Package compat holds the headers with which gorgonia.org/cu builds on CUDA
// 11 to 13 and cuDNN 8 and 9. They stand in front of the toolkit's own on the
// include path: 'stheno env' puts them there.
//
// Under the tag cuda the package also has the versions that a program was built with, and a build
// without the toolkit or these headers fails with a message that names them.
package compat

import "embed"

// Headers are include/cuda.h and include/cudnn.h.
//
//go:embed include/*.h
var Headers embed.FS

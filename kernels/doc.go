// Package kernels holds the kernels of Stheno and the plans that launch them.
//
// A kernel is one function with two bodies: CUDA (x.cu) and Go (x.go). The Go file also defines the plan: which kernels to launch on which grids. A
// plan depends only on shapes, dtype and device properties. A [Plan] is plain data; it runs on a GPU through package cudaops and on the host through
// [Plan.Run].
//
// The compiled images are in images/; build/ compiles them from the sources.
package kernels

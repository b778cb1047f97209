// Package kernels holds the kernels of Stheno and the plans that launch them.
//
// A kernel is one function with two bodies: CUDA (x.cu) and Go (x.go). Beside
// the Go body stands the plan: which kernels run on which grids, made from
// shapes, a dtype and the device's properties alone. A [Plan] is plain data; it
// runs on a GPU through package cudaops and on the host through [Plan.Run].
//
// The compiled images lie in images/, made from the sources by build/.
package kernels

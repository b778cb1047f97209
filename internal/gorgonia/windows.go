package gorgonia

import "gorgonia.org/gorgonia"

// Windowed is an op that slides windows over the rows and columns of images. Pairs are of
// rows and columns.
type Windowed struct {
	Name       string // im2col, maxpool, averagepool or upsample
	Derivative bool   // of the op of that name
	Size       [2]int // of a window
	Stride     [2]int // from window to window
	Dilation   [2]int // from element to element of a window
	// Before and After are how far the first and the last window may reach outside of an
	// image.
	Before, After [2]int
}

// windowedOps are the type names of the ops.
var windowedOps = map[string]Windowed{
	"im2colOp": {Name: "im2col"}, "col2imOp": {Name: "im2col", Derivative: true},
	"maxPoolOp": {Name: "maxpool"}, "maxPoolDiffOp": {Name: "maxpool", Derivative: true},
	"avgPoolOp": {Name: "averagepool"}, "avgPoolDiffOp": {Name: "averagepool", Derivative: true},
	"upsampleOp": {Name: "upsample"}, "upsampleDiffOp": {Name: "upsample", Derivative: true},
}

// Windows returns the windows of one of those ops.
//
// Of four paddings of a pool, which are documented as above, below, left and right, those
// documented as below and right are before the first row and column.
func Windows(op gorgonia.Op) (w Windowed, ok bool) {
	name := OpName(op)
	if w, ok = windowedOps[name]; !ok {
		return w, false
	}
	f := fieldsOf(op, name)
	pair := func(rows, columns string) [2]int { return [2]int{f.int(rows), f.int(columns)} }
	if w.Name == "upsample" { // a window for each element, side by side
		scale := f.int("stride") + 1
		w.Size, w.Dilation = [2]int{scale, scale}, [2]int{1, 1}
		w.Stride = w.Size
		return w, f.ok
	}
	w.Size, w.Stride, w.Dilation = pair("h", "w"), pair("strideH", "strideW"), [2]int{1, 1}
	if w.Name == "im2col" {
		w.Dilation = pair("dilationH", "dilationW")
		w.Before = pair("padH", "padW")
		w.After = w.Before
		return w, f.ok
	}
	w.Before, w.After = pair("padNorth", "padWest"), pair("padSouth", "padEast")
	if f.bool("explicitPadding") {
		w.Before, w.After = w.After, w.Before
	}
	return w, f.ok
}

package window

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// Windows slide over the rows and the columns of images.
type Windows struct{ Rows, Columns WindowAxis }

// WindowAxis is one axis of images and the windows along it: window i begins at element
// i Stride - Before and takes Size elements, each Dilation-th.
type WindowAxis struct {
	In            int // elements of an image
	Size          int
	Stride        int
	Dilation      int
	Before, After int // elements that windows reach outside
}

// Out returns the number of windows along the axis, 0 if none fits.
func (a WindowAxis) Out() int {
	room := a.In + a.Before + a.After - a.Dilation*(a.Size-1) - 1
	if room < 0 {
		return 0
	}
	return room/a.Stride + 1
}

// elements returns the elements of a window.
func (w Windows) elements() int64 { return int64(w.Rows.Size) * int64(w.Columns.Size) }

// plane and out return the elements of an image's plane, and its windows.
func (w Windows) plane() int64 { return int64(w.Rows.In) * int64(w.Columns.In) }

func (w Windows) out() int64 { return int64(w.Rows.Out()) * int64(w.Columns.Out()) }

// check returns an error if kernels cannot handle the windows. They count within a plane, and
// within a window of all channels, in 31 bits.
func (w Windows) check(channels int64) error {
	const most = 1 << 30
	for _, a := range []WindowAxis{w.Rows, w.Columns} {
		if a.In < 1 || a.Size < 1 || a.Stride < 1 || a.Dilation < 1 || a.Before < 0 || a.After < 0 || a.Out() < 1 ||
			int64(a.In)+int64(a.Before)+int64(a.After)+int64(a.Stride) > most {
			return fmt.Errorf("got windows %+v, want some along each axis", w)
		}
	}
	if w.plane() > most || w.out() > most || w.elements() > most || channels > most/w.elements() {
		return fmt.Errorf("got windows %+v in %d channels, want at most 2^30 elements in a plane, of windows and in a window", w, channels)
	}
	return nil
}

// arguments returns the windows as kernels take them: two of windows.cuh's Axis.
func (w Windows) arguments() (args []any) {
	for _, a := range []WindowAxis{w.Rows, w.Columns} {
		args = append(args, int32(a.In), int32(a.Out()), int32(a.Size), int32(a.Stride), int32(a.Dilation), int32(a.Before))
	}
	return args
}

// axis is a WindowAxis in a Go body.
type axis struct{ in, out, size, stride, dilation, pad int64 }

// windowAxes returns those of the arguments from i on.
func windowAxes(c kernels.Call, i int) (rows, columns axis) {
	at := func(i int) axis {
		return axis{c.Int(i), c.Int(i + 1), c.Int(i + 2), c.Int(i + 3), c.Int(i + 4), c.Int(i + 5)}
	}
	return at(i), at(i + 6)
}

// windowed returns which elements from lo to hi of window o are inside of the image, and where the
// first of them is.
func (a axis) windowed(o int64) (first, lo, hi int64) {
	first = o*a.stride - a.pad
	if first >= 0 && first+(a.size-1)*a.dilation < a.in { // all of them, as for most windows: without a division
		return first, 0, a.size
	}
	if lo = kernels.CeilDiv(max(-first, 0), a.dilation); first < a.in {
		hi = min(kernels.CeilDiv(a.in-first, a.dilation), a.size)
	}
	return first, lo, max(lo, hi)
}

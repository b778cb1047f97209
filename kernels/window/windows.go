package window

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// Windows slide over the rows and the columns of images.
type Windows struct{ Rows, Columns WindowAxis }

// WindowAxis is one axis of images and the windows along it: window i begins at element i Stride - Before and has Size elements, Dilation apart.
type WindowAxis struct {
	In            int // elements of an image
	Size          int
	Stride        int
	Dilation      int
	Before, After int // elements outside the image that windows reach
}

// Out returns the number of windows along the axis, 0 if none fits.
//
//go:noinline
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

// check returns an error if kernels cannot handle the windows. They count within a plane, and within a window of all channels, in 31 bits.
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

// axes are the arguments that describe windows.
type axes struct{ Rows, Columns axis }

// axis is windows.cuh's Axis.
type axis struct {
	In, Out, Size, Stride, Dilation, Pad int64 `arg:"int32"`
}

func (w Windows) axes() axes { return axes{w.Rows.axis(), w.Columns.axis()} }

func (a WindowAxis) axis() axis {
	return axis{int64(a.In), int64(a.Out()), int64(a.Size), int64(a.Stride), int64(a.Dilation), int64(a.Before)}
}

// windowed returns the range of elements of window o that are inside the image, lo to hi, and the offset of element 0.
func (a axis) windowed(o int64) (first, lo, hi int64) {
	first = o*a.Stride - a.Pad
	if first >= 0 && first+(a.Size-1)*a.Dilation < a.In { // all elements, as in most windows: no division
		return first, 0, a.Size
	}
	if lo = kernels.CeilDiv(max(-first, 0), a.Dilation); first < a.In {
		hi = min(kernels.CeilDiv(a.In-first, a.Dilation), a.Size)
	}
	return first, lo, max(lo, hi)
}

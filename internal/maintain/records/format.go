package records

import (
	"fmt"
	"strings"
)

// GBs is the rate of a record's least traffic in GB/s.
func (r Record) GBs() float64 { return r.Values["bytes"] / r.Us / 1e3 }

// TFLOPs is the rate of a record's arithmetic in TFLOP/s.
func (r Record) TFLOPs() float64 { return r.Values["flops"] / r.Us / 1e6 }

// Arithmetic reports whether the case is bound by the arithmetic units rather than by memory:
// whether it does 8 operations or more for each byte, which is between the balance points of GPUs
// in float32 and in float64.
func (r Record) Arithmetic() bool { return r.Values["flops"] >= 8*r.Values["bytes"] }

// Complete reports whether the time includes all the work of the case: not if a part of a graph runs on the host.
func (r Record) Complete() bool { return r.Us > 0 && r.Values["host"] == 0 }

// Micros prints the time, "-" for a graph that has no launches.
func (r Record) Micros() string {
	if r.Us == 0 {
		return "-"
	}
	return Micros(r.Us)
}

// Rate prints the rate by which the case is judged, "" for one that is not complete.
func (r Record) Rate() string {
	if !r.Complete() {
		return ""
	}
	switch tflops, gbs := r.TFLOPs(), r.GBs(); {
	case r.Arithmetic() && tflops < 0.05:
		return fmt.Sprintf("%.1f GFLOP/s", 1e3*tflops)
	case r.Arithmetic():
		return fmt.Sprintf("%.1f TFLOP/s", tflops)
	case gbs < 10:
		return fmt.Sprintf("%.2f GB/s", gbs)
	default:
		return fmt.Sprintf("%.0f GB/s", gbs)
	}
}

// Launches prints the number of launches of a graph or a step, and of its ops on the host.
func (r Record) Launches() string {
	text := fmt.Sprintf("%.0f launches", r.Values["launches"])
	if r.Values["launches"] == 1 {
		text = "1 launch"
	}
	if r.Values["host"] > 0 {
		text += fmt.Sprintf(", %.0f on the host", r.Values["host"])
	}
	return text
}

// OfCopy prints a record's rate as a share of device copy's bandwidth; "" for one that is bound by
// arithmetic or not complete.
func (f *File) OfCopy(r Record) string {
	bandwidth := f.RunOf(r).Copy
	if r.Arithmetic() || bandwidth == 0 || !r.Complete() {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*r.GBs()/bandwidth)
}

// OfPeer prints a record's speed as a share of the fastest peer's; "" without
// one, and for a record that is not complete.
func (f *File) OfPeer(r Record) string {
	p, ok := f.Best(r.Key)
	if !ok || !r.Complete() {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*p.Us/r.Us)
}

// peer prints the fastest peer and its time, "" without one.
func (f *File) peer(r Record) string {
	p, ok := f.Best(r.Key)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s, %s", p.By, Micros(p.Us))
}

// timeBy prints a peer's time of a case, "" if there is none.
func (f *File) timeBy(k Key, by string) string {
	for _, p := range f.Records {
		if p.Kind == Peer && p.Key == k && p.By == by {
			return Micros(p.Us)
		}
	}
	return ""
}

// Micros prints a time of that many microseconds with three digits.
func Micros(us float64) string {
	unit := "us"
	if us >= 1000 {
		us, unit = us/1000, "ms"
	}
	return Digits3(us) + " " + unit
}

// Digits3 prints a number with three digits, or all before the point.
func Digits3(x float64) string {
	switch {
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// Long prints an element type as documents do.
func Long(dtype string) string { return strings.Replace(dtype, "f", "float", 1) }

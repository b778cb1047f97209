package kernels

import (
	"reflect"
	"strings"
	"testing"
)

// Arguments come back as they were written.
func TestArgs(t *testing.T) {
	type pair struct {
		N    int64 `arg:"int32"`
		Size int64
	}
	type arguments struct {
		X     Ref
		Pairs [2]pair
		Flag  bool
		Scale any
		Out   Ref
	}
	want := arguments{X: In(0), Pairs: [2]pair{{1, 2}, {3, 4}}, Flag: true, Scale: float32(0.5), Out: At(Out, 8)}
	var p Plan
	l := p.Launch(nil, 1, 1, want, int32(7))
	if flat := []any{In(0), int32(1), int64(2), int32(3), int64(4), int32(1), float32(0.5), At(Out, 8), int32(7)}; !reflect.DeepEqual(l.Args, flat) {
		t.Errorf("got arguments %v, want %v", l.Args, flat)
	}
	got := Args[arguments](Call{Launch: l})
	if got.X.argument != 1 || got.Out.argument != 8 {
		t.Errorf("got references to arguments %d and %d, want 1 and 8", got.X.argument, got.Out.argument)
	}
	if got.X.argument, got.Out.argument = 0, 0; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	defer func() {
		if want, got := "argument 0 is a kernels.Ref, the Go body takes a int64", recover(); got != want {
			t.Errorf("got panic %v, want %v", got, want)
		}
	}()
	Args[struct{ N int64 }](Call{Launch: l})
}

// A number beyond the 32 bits that a kernel reads is whole on the host, and an error for a GPU.
func TestLargeArgs(t *testing.T) {
	type arguments struct {
		N    int64 `arg:"int32"`
		Size int64
	}
	for n, fits := range map[int64]bool{1<<31 - 1: true, -1 << 31: true, 1 << 31: false, 1 << 32: false, -1<<31 - 1: false, 1 << 62: false} {
		p := Plan{Out: 8}
		l := p.Launch(&Kernel{Entry: "k"}, 1, 1, arguments{n, 1 << 40})
		if got := Args[arguments](Call{Launch: l}); got.N != n || got.Size != 1<<40 {
			t.Errorf("got %+v, want %d and 2^40", got, n)
		}
		if err := p.Check(HostDevice()); err != nil {
			t.Errorf("%d on the host: %v", n, err)
		}
		err := p.Check(Device{Major: 9, SMs: 132})
		if want := "argument 0: got"; fits && err != nil || !fits && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d on a GPU: got the error %v, want one with %q: %v", n, err, want, !fits)
		}
	}
}

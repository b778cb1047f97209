package cudaops

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

// sessions are one on the host and, where there is a GPU, one there.
func sessions(t *testing.T) map[string]*Session {
	all := map[string]*Session{"host": OpenHost()}
	s, err := Open(0)
	switch {
	case err == nil:
		all["GPU"] = s
	case testutil.Required("GPU"):
		t.Fatal(err)
	case !errors.Is(err, ErrNoDevice):
		t.Errorf("Open gives %v, want ErrNoDevice in its chain", err)
	}
	for _, s := range all {
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return all
}

// Two numbers a[i], b[i] go there, are added by a kernel, and come back.
func TestSession(t *testing.T) {
	const n = 1021
	kernel := basic.Add(kernels.HostDevice(), kernels.Float32, n).Launches[0].Kernel
	for name, s := range sessions(t) {
		t.Run(name, func(t *testing.T) {
			x, y, z := make([]float32, n), make([]float32, n), make([]float32, n)
			for i := range x {
				x[i], y[i], z[i] = float32(i), float32(2*i+1), float32(math.NaN())
			}
			var m [3]*Buffer
			for i := range m {
				var err error
				if m[i], err = s.Alloc(n * 4); err != nil {
					t.Fatal(err)
				}
				if m[i].Size() != n*4 {
					t.Errorf("memory of %d bytes says %d", n*4, m[i].Size())
				}
			}
			for _, err := range []error{
				s.CopyTo(m[0], kernels.Bytes(x)), s.CopyTo(m[1], kernels.Bytes(y)),
				s.Launch(kernel, [3]int{2, 1, 1}, [3]int{512, 1, 1}, 0, m[0], m[1], m[2], int64(n)),
				s.CopyFrom(kernels.Bytes(z), m[2]), s.Sync(),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			for i, v := range z {
				if v != float32(3*i+1) {
					t.Fatalf("element %d is %v, want %d", i, v, 3*i+1)
				}
			}
			// A part of memory, from its start.
			if err := errors.Join(s.CopyTo(m[2], kernels.Bytes(y[:3])), s.CopyFrom(kernels.Bytes(z[:5]), m[2])); err != nil {
				t.Fatal(err)
			}
			for i, want := range []float32{1, 3, 5, 10, 13} {
				if z[i] != want {
					t.Errorf("element %d is %v, want %v", i, z[i], want)
				}
			}
			if err := s.Free(m[0]); err != nil {
				t.Error(err)
			}
			if err := s.Free(m[0]); err == nil || !strings.Contains(err.Error(), "was freed") {
				t.Errorf("freed twice: %v", err)
			}
		})
	}
}

// A sum in a cooperative launch.
func TestSessionCooperative(t *testing.T) {
	x, want := make([]float32, 1<<20+3), 0.0
	for i := range x {
		x[i] = float32(i % 13)
		want += float64(x[i])
	}
	for name, s := range sessions(t) {
		t.Run(name, func(t *testing.T) {
			dev := s.device.Device()
			plan := reduce.Sum(dev, kernels.Float32, []int{len(x)}, []int{0}, false)
			if len(plan.Launches) != 1 {
				t.Fatalf("got %v, want one launch", plan)
			}
			in, out := testutil.Get[*Buffer](t)(s.Alloc(int64(len(x))*4)), testutil.Get[*Buffer](t)(s.Alloc(4))
			memory := map[kernels.Operand]*Buffer{0: in, kernels.Out: out, kernels.Scratch: testutil.Get[*Buffer](t)(s.Alloc(max(plan.Scratch, 1))), kernels.Arrivals: testutil.Get[*Buffer](t)(s.Alloc(4))}
			testutil.Do(t, s.CopyTo(memory[kernels.Arrivals], make([]byte, 4)))
			l := plan.Launches[0]
			for i, a := range l.Args {
				if ref, ok := a.(kernels.Ref); ok {
					l.Args[i] = memory[ref.Operand]
				}
			}
			got := make([]float32, 1)
			testutil.Do(t, errors.Join(s.CopyTo(in, kernels.Bytes(x)), s.LaunchCooperative(l.Kernel, l.Grid, l.Block, l.Shared, l.Args...), s.CopyFrom(kernels.Bytes(got), out)))
			if float64(got[0]) != want {
				t.Errorf("got %v, want %v", got[0], want)
			}
		})
	}
}

// A wrong call returns an error, and nothing panics.
func TestSessionErrors(t *testing.T) {
	kernel := basic.Add(kernels.HostDevice(), kernels.Float32, 8).Launches[0].Kernel
	one := [3]int{1, 1, 1}
	for name, s := range sessions(t) {
		t.Run(name, func(t *testing.T) {
			m, err := s.Alloc(16)
			if err != nil {
				t.Fatal(err)
			}
			other := OpenHost()
			foreign, err := other.Alloc(16)
			if err != nil {
				t.Fatal(err)
			}
			_, negative := s.Alloc(-1)
			_, huge := s.Alloc(1 << 62)
			for want, err := range map[string]error{
				"-1 bytes":        negative,
				"4611686":         huge,
				"17 bytes":        s.CopyTo(m, make([]byte, 17)),
				"18 bytes":        s.CopyFrom(make([]byte, 18), m),
				"a nil buffer":    s.CopyTo(nil, nil),
				"another session": s.Launch(kernel, one, one, 0, foreign),
				"argument 1":      s.Launch(kernel, one, one, 0, m, 5),
				"nil kernel":      s.Launch(nil, one, one, 0),
				"grid [0 1 1]":    s.Launch(kernel, [3]int{0, 1, 1}, one, 0, m, m, m, int64(4)),
				"-8 bytes shared": s.Launch(kernel, one, one, -8, m, m, m, int64(4)),
			} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v, want one with %q", err, want)
				}
			}
			if name == "host" {
				if err := s.Launch(&kernels.Kernel{Entry: "x"}, one, one, 0); err == nil || !strings.Contains(err.Error(), "no Go body") {
					t.Errorf("a kernel without a body: %v", err)
				}
			} else if err := s.Launch(&kernels.Kernel{Image: kernels.Builtin().Image("add"), Entry: "x"}, one, one, 0); err == nil || !strings.Contains(err.Error(), "no entry point x") {
				t.Errorf("an unknown kernel: %v", err)
			}
			if err := errors.Join(other.Close(), other.Close()); err != nil {
				t.Error(err)
			}
			if _, err := other.Alloc(1); err == nil || !strings.Contains(err.Error(), "closed") {
				t.Errorf("a closed session: %v", err)
			}
			if err := other.Free(foreign); err == nil || !strings.Contains(err.Error(), "closed") {
				t.Errorf("a closed session: %v", err)
			}
		})
	}
	if _, err := Open(99); !errors.Is(err, ErrNoDevice) {
		t.Errorf("device 99: %v, want ErrNoDevice", err)
	}
}

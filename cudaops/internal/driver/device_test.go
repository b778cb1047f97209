package driver

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// openDevice opens device 0. With no device the test is skipped, or fails if
// STHENO_REQUIRE_GPU=1 demands one.
func openDevice(t testing.TB) *Context {
	t.Helper()
	d, err := Get(0)
	testutil.SkipUnless(t, "GPU", err)
	c, err := d.Open()
	testutil.Do(t, err)
	t.Cleanup(func() { testutil.Do(t, c.Close()) })
	return c
}

// scale multiplies n 32-bit integers by k.
const scale = `.version 6.0
.target sm_60
.address_size 64
.visible .entry scale(.param .u64 p, .param .u32 n, .param .u32 k)
{
	.reg .pred %q;
	.reg .b32 %r<8>;
	.reg .b64 %d<4>;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ntid.x;
	mov.u32 %r3, %tid.x;
	mad.lo.u32 %r4, %r1, %r2, %r3;
	ld.param.u32 %r5, [n];
	setp.ge.u32 %q, %r4, %r5;
	@%q ret;
	ld.param.u64 %d1, [p];
	ld.param.u32 %r6, [k];
	mad.wide.u32 %d2, %r4, 4, %d1;
	ld.global.u32 %r7, [%d2];
	mul.lo.u32 %r7, %r7, %r6;
	st.global.u32 [%d2], %r7;
	ret;
}
`

// openScale loads scale and opens a stream for it, until the test's end.
func openScale(t testing.TB, c *Context) (*Function, *Stream) {
	t.Helper()
	m, err := c.Load([]byte(scale))
	testutil.Do(t, err)
	t.Cleanup(func() { testutil.Do(t, m.Unload()) })
	f, err := m.Function("scale")
	testutil.Do(t, err)
	s, err := c.NewStream()
	testutil.Do(t, err)
	t.Cleanup(func() { testutil.Do(t, s.Close()) })
	return f, s
}

func TestDevice(t *testing.T) {
	c := openDevice(t)
	d := c.Device
	if d.Name == "" || d.Major < 5 || d.SMs < 1 || d.SharedPerBlock < 48<<10 || d.SharedOptin < d.SharedPerBlock ||
		d.L2 < 1 || d.Memory < 1<<28 || d.MaxThreadsPerBlock != 1024 {
		t.Errorf("device properties make no sense: %+v", *d)
	}
	v, err := Version()
	testutil.Do(t, err)
	free, total, err := c.MemInfo()
	testutil.Do(t, err)
	if free <= 0 || free > total {
		t.Errorf("%d bytes free of %d", free, total)
	}
	t.Logf("%+v, CUDA %d, driver %q", *d, v, Release())
}

func TestMemory(t *testing.T) {
	c := openDevice(t)
	for _, n := range []int64{0, 1, 7, 1 << 20} {
		p, err := c.Alloc(n)
		testutil.Do(t, err)
		want, got := bytes.Repeat([]byte{3, 1, 4}, int(n))[:n], make([]byte, n)
		testutil.Do(t, c.Upload(p, want))
		testutil.Do(t, c.Download(got, p))
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes came back changed", n)
		}
		testutil.Do(t, c.Memset8(p, 0xa5, n))
		testutil.Do(t, c.Download(got, p))
		if bytes.Count(got, []byte{0xa5}) != int(n) {
			t.Errorf("memset of %d bytes missed some", n)
		}
		testutil.Do(t, c.Free(p))
	}
	if _, err := c.Alloc(1 << 50); !IsOutOfMemory(err) {
		t.Errorf("allocating 2^50 bytes gives %v", err)
	}
	if _, err := c.Alloc(-1); err == nil {
		t.Error("allocating -1 bytes works")
	}
}

func TestAdopt(t *testing.T) {
	c := openDevice(t)
	p, err := c.Alloc(8)
	testutil.Do(t, err)
	a := c.Device.Adopt(c.handle)
	testutil.Do(t, a.Memset8(p, 1, 8))
	testutil.Do(t, a.DefaultStream().Sync())
	host := make([]byte, 8)
	testutil.Do(t, a.Download(host, p))
	if host[7] != 1 {
		t.Errorf("got %v", host)
	}
	if !a.OnDevice(p) || a.OnDevice(Ptr(uintptr(unsafe.Pointer(&host[0])))) {
		t.Errorf("memory of the device is on it: %v, of the host: %v", a.OnDevice(p), a.OnDevice(Ptr(uintptr(unsafe.Pointer(&host[0])))))
	}
	testutil.Do(t, a.Close())
	if err := a.Memset8(p, 1, 8); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	testutil.Do(t, c.Free(p)) // its own context is still there
}

func TestLaunch(t *testing.T) {
	c := openDevice(t)
	m, err := c.Load([]byte(scale))
	testutil.Do(t, err)
	f, err := m.Function("scale")
	testutil.Do(t, err)
	testutil.Do(t, f.SetMaxShared(c.Device.SharedOptin))
	a, err := f.Attributes()
	testutil.Do(t, err)
	blocks, err := f.MaxActiveBlocks(256, 0)
	testutil.Do(t, err)
	if a.Registers < 1 || a.Local != 0 || a.Shared != 0 || blocks < 1 {
		t.Errorf("attributes %+v, %d blocks", a, blocks)
	}
	if _, err := m.Function("nothing"); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a kernel that is not there gives %v", err)
	}

	// Several goroutines, each with its stream, as a VM and a test beside it.
	var wg sync.WaitGroup
	for k := uint32(1); k <= 4; k++ {
		wg.Go(func() {
			if err := scaleOn(c, f, k); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	testutil.Do(t, m.Unload())
	testutil.Do(t, m.Unload())

	if _, err := c.Load([]byte(strings.Replace(scale, "mul.lo", "mul.up", 1))); err == nil || !strings.Contains(err.Error(), "line") {
		t.Errorf("broken PTX gives an error without the compiler's words: %v", err)
	}
}

func scaleOn(c *Context, f *Function, k uint32) (err error) {
	const n = 100_003
	s, err := c.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	start, err := c.NewEvent()
	if err != nil {
		return err
	}
	defer start.Close()
	stop, err := c.NewEvent()
	if err != nil {
		return err
	}
	defer stop.Close()
	p, err := c.Alloc(4 * n)
	if err != nil {
		return err
	}
	defer c.Free(p)
	q, err := c.Alloc(4 * n)
	if err != nil {
		return err
	}
	defer c.Free(q)

	in, out := make([]uint32, n), make([]uint32, n)
	for i := range in {
		in[i] = uint32(i)
	}
	count := uint32(n)
	err = errors.Join(
		s.Record(start),
		s.Upload(p, raw(in)),
		s.Launch(f, [3]uint32{(n + 255) / 256, 1, 1}, [3]uint32{256, 1, 1}, 0, false,
			[]unsafe.Pointer{unsafe.Pointer(&p), unsafe.Pointer(&count), unsafe.Pointer(&k)}),
		s.Copy(q, p, 4*n),
		s.Download(raw(out), q),
		s.Record(stop),
		s.Sync(),
	)
	if err != nil {
		return err
	}
	for i, v := range out {
		if v != uint32(i)*k {
			return fmt.Errorf("element %d times %d is %d", i, k, v)
		}
	}
	if d, err := Elapsed(start, stop); err != nil || d <= 0 {
		return fmt.Errorf("elapsed %v, %w", d, err)
	}
	if err := s.Launch(f, [3]uint32{1, 1, 1}, [3]uint32{4096, 1, 1}, 0, false,
		[]unsafe.Pointer{unsafe.Pointer(&p), unsafe.Pointer(&count), unsafe.Pointer(&k)}); err == nil {
		return errors.New("a block of 4096 threads was launched")
	}
	return s.Sync()
}

func raw(s []uint32) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), 4*len(s)) }

// A recorded launch runs as often as the graph is launched, and not before; a
// recording that fails returns an error and leaves the context usable.
func TestGraph(t *testing.T) {
	c := openDevice(t)
	f, s := openScale(t, c)
	const n = 1000
	p, err := c.Alloc(4 * n)
	testutil.Do(t, err)
	defer func() { testutil.Do(t, c.Free(p)) }()
	values := make([]uint32, n)
	for i := range values {
		values[i] = uint32(i)
	}
	testutil.Do(t, c.Upload(p, raw(values)))
	count, k := uint32(n), uint32(3)
	g, err := c.Capture(true, func(s *Stream) error {
		for range 2 {
			if err := s.Launch(f, [3]uint32{4, 1, 1}, [3]uint32{256, 1, 1}, 0, false,
				[]unsafe.Pointer{unsafe.Pointer(&p), unsafe.Pointer(&count), unsafe.Pointer(&k)}); err != nil {
				return err
			}
		}
		k = 5 // arguments are copied while recording
		return nil
	})
	testutil.Do(t, err)
	for launches, want := range []uint32{1, 9, 81} {
		if launches > 0 {
			testutil.Do(t, s.LaunchGraph(g))
		}
		testutil.Do(t, s.Sync())
		testutil.Do(t, c.Download(raw(values), p))
		for i, v := range values {
			if v != uint32(i)*want {
				t.Fatalf("after %d launches element %d is %d, want %d", launches, i, v, uint32(i)*want)
			}
		}
	}
	testutil.Do(t, g.Close())
	testutil.Do(t, g.Close())
	failure := errors.New("no")
	if _, err := c.Capture(true, func(*Stream) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("a recording that fails gives %v", err)
	}
	if _, err := c.Capture(true, func(s *Stream) error { return s.Sync() }); err == nil {
		t.Error("a sync was recorded")
	}
	testutil.Do(t, s.Sync())
}

// With and without programmatic edges, kernels that wait for their dependencies read what the earlier kernels wrote and
// overwrite what they have read.
func TestGraphEarly(t *testing.T) {
	c := openDevice(t)
	f, s := openScale(t, c)
	follows := f
	if c.Device.Major >= 9 {
		text := strings.NewReplacer(".version 6.0", ".version 7.8", "sm_60", "sm_90", "mov.u32 %r1", "griddepcontrol.wait;\n\tmov.u32 %r1").Replace(scale)
		m, err := c.Load([]byte(text))
		testutil.Do(t, err)
		defer func() { testutil.Do(t, m.Unload()) }()
		follows, err = m.Function("scale")
		testutil.Do(t, err)
		follows.WaitsForDependencies = true
	}
	const n = 1 << 20
	p, err := c.Alloc(4 * n)
	testutil.Do(t, err)
	defer func() { testutil.Do(t, c.Free(p)) }()
	values, k := make([]uint32, n), uint32(3)
	for _, early := range []bool{true, false} {
		want := uint32(1)
		g, err := c.Capture(early, func(s *Stream) error {
			want = 1
			for i := range 60 {
				f, count := []*Function{follows, follows, f}[i%3], uint32(n)
				if i%5 == 0 { // shorter kernels, whose dependents may launch early
					count = n / 2
				}
				if err := s.Launch(f, [3]uint32{(count + 255) / 256, 1, 1}, [3]uint32{256, 1, 1}, 0, false,
					[]unsafe.Pointer{unsafe.Pointer(&p), unsafe.Pointer(&count), unsafe.Pointer(&k)}); err != nil {
					return err
				}
				want *= k
			}
			return nil
		})
		testutil.Do(t, err)
		for i := range values {
			values[i] = uint32(i)
		}
		testutil.Do(t, c.Upload(p, raw(values)))
		testutil.Do(t, s.LaunchGraph(g))
		testutil.Do(t, s.Sync())
		testutil.Do(t, c.Download(raw(values), p))
		for i, v := range values[:n/2] {
			if v != uint32(i)*want {
				t.Fatalf("early %v: element %d is %d, want %d", early, i, v, uint32(i)*want)
			}
		}
		testutil.Do(t, g.Close())
	}
}

// Cooperative launches run as others do, and a grid that cannot be on the device
// at once is an error.
func TestLaunchCooperative(t *testing.T) {
	c := openDevice(t)
	if !c.Device.CooperativeLaunch {
		t.Skip("SKIPPED, NOT TESTED: the device has no cooperative launch")
	}
	f, s := openScale(t, c)
	each, err := f.MaxActiveBlocks(256, 0)
	testutil.Do(t, err)
	most := uint32(each * c.Device.SMs)
	values := make([]uint32, 256*most)
	for i := range values {
		values[i] = uint32(i)
	}
	p, err := c.Alloc(int64(4 * len(values)))
	testutil.Do(t, err)
	defer func() { testutil.Do(t, c.Free(p)) }()
	testutil.Do(t, c.Upload(p, raw(values)))
	count, k := uint32(len(values)), uint32(7)
	params := []unsafe.Pointer{unsafe.Pointer(&p), unsafe.Pointer(&count), unsafe.Pointer(&k)}
	testutil.Do(t, s.Launch(f, [3]uint32{most, 1, 1}, [3]uint32{256, 1, 1}, 0, true, params))
	if err := s.Launch(f, [3]uint32{most + 1, 1, 1}, [3]uint32{256, 1, 1}, 0, true, params); err == nil {
		t.Errorf("%d blocks were launched where %d fit", most+1, most)
	}
	testutil.Do(t, s.Sync())
	testutil.Do(t, c.Download(raw(values), p))
	for i, v := range values {
		if v != uint32(i)*k {
			t.Fatalf("element %d is %d, want %d", i, v, uint32(i)*k)
		}
	}
}

func TestClose(t *testing.T) {
	shared := openDevice(t)
	c, err := shared.Device.Open()
	testutil.Do(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := c.Alloc(1); !errors.Is(err, ErrClosed) {
		t.Errorf("Alloc on a closed context gives %v", err)
	}
	p, err := shared.Alloc(1)
	testutil.Do(t, err)
	testutil.Do(t, shared.Free(p))
}

func BenchmarkLaunchSync(b *testing.B) {
	c := openDevice(b)
	f, s := openScale(b, c)
	var p Ptr
	var n, k uint32
	params := []unsafe.Pointer{unsafe.Pointer(&p), unsafe.Pointer(&n), unsafe.Pointer(&k)}
	b.ReportAllocs()
	for b.Loop() {
		testutil.Do(b, s.Launch(f, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0, false, params))
		testutil.Do(b, s.Sync())
	}
}

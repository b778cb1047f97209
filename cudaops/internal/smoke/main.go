package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"
	"unsafe"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
func ok(err error) {
	if err != nil {
		panic(err)
	}
}

var (
	ctx  *driver.Context
	st   *driver.Stream
	mods = map[string]*driver.Module{}
	fns  = map[string]*driver.Function{}
	dev  kernels.Device
)

func fn(k *kernels.Kernel) *driver.Function {
	if f := fns[k.Entry]; f != nil {
		return f
	}
	m := mods[k.Module]
	if m == nil {
		img, _, _, err := kernels.Image(k.Module, dev.Major, dev.Minor)
		ok(err)
		m = must(ctx.Load(img))
		mods[k.Module] = m
	}
	f := must(m.Function(k.Entry))
	fns[k.Entry] = f
	return f
}

func launch(p *kernels.Plan, in []driver.Ptr, out, scratch driver.Ptr) {
	for _, l := range p.Launches {
		var params []unsafe.Pointer
		for _, a := range l.Args {
			switch a := a.(type) {
			case kernels.Ref:
				var b driver.Ptr
				switch a.Operand {
				case kernels.Out:
					b = out
				case kernels.Scratch:
					b = scratch
				default:
					b = in[a.Operand]
				}
				v := uint64(b) + uint64(a.Offset)
				params = append(params, unsafe.Pointer(&v))
			case int32:
				params = append(params, unsafe.Pointer(&a))
			case int64:
				params = append(params, unsafe.Pointer(&a))
			case float32:
				params = append(params, unsafe.Pointer(&a))
			case float64:
				params = append(params, unsafe.Pointer(&a))
			case kernels.Dims:
				params = append(params, unsafe.Pointer(&a))
			}
		}
		f := fn(l.Kernel)
		if l.Shared > 48<<10 {
			ok(f.SetMaxShared(l.Shared))
		}
		g, b := l.Grid, l.Block
		ok(st.Launch(f, [3]uint32{uint32(g[0]), uint32(g[1]), uint32(g[2])}, [3]uint32{uint32(b[0]), uint32(b[1]), uint32(b[2])}, uint32(l.Shared), params))
	}
}

func main() {
	d := must(driver.Get(0))
	ctx = must(d.Open())
	st = must(ctx.NewStream())
	dev = kernels.Device{Name: d.Name, Major: d.Major, Minor: d.Minor, SMs: d.SMs, SharedOptin: d.SharedOptin, L2: int64(d.L2), Memory: d.Memory}
	fmt.Printf("%+v release %s\n", dev, driver.Release())
	r := rand.New(rand.NewPCG(1, 2))
	bad := 0
	only := ""
	if len(os.Args) > 1 {
		only = os.Args[1]
	}
	for _, s := range ops.All() {
		if only != "" && s.Name != only {
			continue
		}
		cases := s.Cases
		for range 20 {
			cases = append(cases, s.Random(r))
		}
		n := 0
		for _, c := range cases {
			for _, dt := range []kernels.Dtype{0, 1} {
				if len(os.Args) > 2 && (!c.Bench || c.Name != os.Args[2]) {
					continue
				}
				if c.Bench {
					if dt == 0 || s.Name == "MatMul" {
						bench(s, c, dt)
					}
					continue
				}
				g := G.NewGraph()
				var in G.Nodes
				var f [][]float64
				var ptrs []driver.Ptr
				for _, sh := range c.Shapes {
					v, b := values.New(dt, sh)
					var x []float64
					if dt == 0 {
						e := kernels.Elements[float32](b)
						for i := range e {
							e[i] = float32(r.NormFloat64())
							x = append(x, float64(e[i]))
						}
					} else {
						e := kernels.Elements[float64](b)
						for i := range e {
							e[i] = r.NormFloat64()
							x = append(x, e[i])
						}
					}
					f = append(f, x)
					p := must(ctx.Alloc(int64(len(b))))
					ok(ctx.Upload(p, b))
					ptrs = append(ptrs, p)
					in = append(in, G.NodeFromAny(g, v))
				}
				node := must(c.Build(in...))
				want, mag := c.Reference(f...)
				p := must(node.Op().(kernels.Planner).Plan(dev))
				out := must(ctx.Alloc(p.Out + 512))
				ok(ctx.Memset8(out, 0xff, p.Out+512))
				scr := must(ctx.Alloc(p.Scratch))
				ok(ctx.Memset8(scr, 0xff, p.Scratch))
				launch(p, ptrs, out, scr)
				if err := st.Sync(); err != nil {
					fmt.Println("FAIL", s.Name, c.Name, dt, err, p)
					os.Exit(1)
				}
				host := make([]byte, p.Out+512)
				ok(ctx.Download(host, out))
				for _, b := range host[p.Out:] {
					if b != 0xff {
						fmt.Println("OVERRUN", s.Name, c.Name)
						bad++
						break
					}
				}
				n++
				for i := range want {
					var got, eps float64
					if dt == 0 {
						got, eps = float64(kernels.Elements[float32](host)[i]), 1.2e-7
					} else {
						got, eps = kernels.Elements[float64](host)[i], 2.2e-16*20
					}
					if !(math.Abs(got-want[i]) <= eps*mag[i]*s.Tolerance) {
						fmt.Printf("BAD %s %s %v [%d] got %v want %v\n%v", s.Name, c.Name, dt, i, got, want[i], p)
						bad++
						break
					}
				}
				for _, q := range append(ptrs, out, scr) {
					ok(ctx.Free(q))
				}
			}
		}
		fmt.Println(s.Name, n, "checked")
	}
	fmt.Println("bad:", bad)
}

func bench(s ops.Spec, c ops.Case, dt kernels.Dtype) {
	g := G.NewGraph()
	var in G.Nodes
	var ptrs []driver.Ptr
	block := make([]float32, 1<<22)
	for i := range block {
		block[i] = rand.Float32() - 0.5
	}
	bb := kernels.Bytes(block)
	if dt == 1 {
		b64 := make([]float64, 1<<21)
		for i := range b64 {
			b64[i] = rand.Float64() - 0.5
		}
		bb = kernels.Bytes(b64)
	}
	for i, sh := range c.Shapes {
		if dt == 0 && sh.IsScalar() {
			in = append(in, G.NewScalar(g, G.Float32, G.WithName(fmt.Sprint(i))))
		} else {
			in = append(in, G.NewTensor(g, values.Tensor(dt), sh.Dims(), G.WithShape(sh...), G.WithName(fmt.Sprint(i))))
		}
		size := int64(1) * dt.Size()
		for _, d := range sh {
			size *= int64(d)
		}
		p := must(ctx.Alloc(size))
		for at := int64(0); at < size; at += int64(len(bb)) {
			ok(ctx.Upload(p+driver.Ptr(at), bb[:min(int64(len(bb)), size-at)]))
		}
		ptrs = append(ptrs, p)
	}
	p := must(must(c.Build(in...)).Op().(kernels.Planner).Plan(dev))
	out, scr := must(ctx.Alloc(p.Out)), must(ctx.Alloc(p.Scratch))
	var times []time.Duration
	e0, e1 := must(ctx.NewEvent()), must(ctx.NewEvent())
	for i := range 25 {
		ok(st.Record(e0))
		launch(p, ptrs, out, scr)
		ok(st.Record(e1))
		ok(st.Sync())
		if i > 4 {
			times = append(times, must(driver.Elapsed(e0, e1)))
		}
	}
	slices.Sort(times)
	m := times[len(times)/2].Seconds()
	fmt.Printf("BENCH %-10s %-24s %v %9.1f us %7.0f GB/s %7.2f TFLOP/s  %s\n", s.Name, c.Name, dt, m*1e6, float64(p.Bytes())/m/1e9, float64(p.Flops)/m/1e12, p.Launches[0].Kernel.Entry)
	for _, q := range append(ptrs, out, scr) {
		ok(ctx.Free(q))
	}
}

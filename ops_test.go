package stheno_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/internal/compare"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file runs every op of ops.All() through one suite: plans against the
// plain reference (on the host and on a GPU), graphs on every machine,
// gradients against differences, and bad input. The suite's functions give
// errors, so that the last tests can show that they do.

// seed is STHENO_SEED, or new in every run; every test prints it.
var seed = seedOf(os.Getenv("STHENO_SEED"))

func seedOf(s string) uint64 {
	if seed, err := strconv.ParseUint(s, 10, 64); err == nil {
		return seed
	}
	return rand.Uint64()
}

// random is a generator for one test: other numbers for every name, the same
// ones when the test runs alone.
func random(t *testing.T) *rand.Rand {
	t.Logf("STHENO_SEED=%d", seed)
	h := fnv.New64a()
	h.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// gpu is the first CUDA device. Without one the test is skipped, or fails where
// STHENO_REQUIRE_GPU=1.
func gpu(t *testing.T) kernels.Device {
	t.Helper()
	devices, err := stheno.Devices()
	if err == nil {
		return devices[0].Device
	}
	if os.Getenv("STHENO_REQUIRE_GPU") == "1" {
		t.Fatalf("STHENO_REQUIRE_GPU=1, but no GPU: %v", err)
	}
	t.Skipf("SKIPPED, NOT TESTED ON A GPU: %v", err)
	panic("unreachable")
}

// each calls f on every spec, case and type; the cases drawn at random count.
func each(t *testing.T, limit int, f func(t *testing.T, s ops.Spec, c ops.Case, dt kernels.Dtype)) {
	eachOf(t, ops.All(), limit, f)
}

// eachDifferentiable is each on the ops that have a gradient.
func eachDifferentiable(t *testing.T, limit int, f func(t *testing.T, s ops.Spec, c ops.Case, dt kernels.Dtype)) {
	eachOf(t, slices.DeleteFunc(ops.All(), func(s ops.Spec) bool { return s.NoGradient }), limit, f)
}

// maxElements, STHENO_MAX_ELEMENTS, leaves out larger cases: for checkers that
// slow kernels down a thousandfold.
var maxElements, _ = strconv.Atoi(os.Getenv("STHENO_MAX_ELEMENTS"))

func eachOf(t *testing.T, specs []ops.Spec, limit int, f func(t *testing.T, s ops.Spec, c ops.Case, dt kernels.Dtype)) {
	for _, s := range specs {
		t.Run(s.Name, func(t *testing.T) {
			r := random(t)
			cases := s.Cases
			draws := 6
			if testing.Short() {
				draws = 2
			}
			for i := range draws {
				c := s.Random(r)
				c.Name = fmt.Sprintf("random %d %v %s", i, c.Shapes, c.Name)
				cases = append(cases[:len(cases):len(cases)], c)
			}
			ran := 0
			for _, c := range cases {
				if c.Bench || elements(c) > limit || testing.Short() && elements(c) > limit/16 || maxElements > 0 && elements(c) > maxElements {
					continue
				}
				for _, dt := range s.Dtypes() {
					t.Run(fmt.Sprintf("%s/%v", c.Name, dt), func(t *testing.T) { f(t, s, c, dt) })
				}
				ran++
			}
			if ran == 0 {
				t.Error("no case was run")
			}
		})
	}
}

// elements counts those of all inputs.
func elements(c ops.Case) int {
	n := 0
	for _, s := range c.Shapes {
		n += s.TotalSize()
	}
	return n
}

// node builds a case on nodes with the given values, or none.
func node(c ops.Case, dt kernels.Dtype, vs []gorgonia.Value) (in gorgonia.Nodes, out *gorgonia.Node, err error) {
	g := gorgonia.NewGraph()
	for i, s := range c.Shapes {
		opts := []gorgonia.NodeConsOpt{gorgonia.WithShape(s...), gorgonia.WithName(fmt.Sprintf("in%d", i))}
		if vs != nil {
			opts = append(opts, gorgonia.WithValue(vs[i]))
		}
		in = append(in, gorgonia.NewTensor(g, values.Tensor(dt), len(s), opts...))
	}
	out, err = c.Build(in...)
	return in, out, err
}

// planOf is how a case runs on a device, and the type of its output.
func planOf(c ops.Case, dt kernels.Dtype, dev kernels.Device) (*kernels.Plan, kernels.Dtype, error) {
	_, out, err := node(c, dt, nil)
	if err != nil {
		return nil, 0, err
	}
	p, ok := out.Op().(kernels.Planner)
	if !ok {
		return nil, 0, fmt.Errorf("the op is a %T, want a kernels.Planner", out.Op())
	}
	result, ok := values.Dtype(out.Dtype())
	if !ok {
		return nil, 0, fmt.Errorf("the output is of %v", out.Dtype())
	}
	plan, err := p.Plan(dev)
	return plan, result, err
}

// A kind of input draws element k of n for a type whose least positive number
// is tiny.
type kind struct {
	name string
	draw func(r *rand.Rand, k, n int, tiny float64) float64
}

var (
	// short are random numbers of 12 bits, so products have 24.
	short  = kind{"random, 12 bits", func(r *rand.Rand, _, _ int, _ float64) float64 { return float64(r.IntN(4095)-2047) / 1024 }}
	normal = kind{"random", func(r *rand.Rand, _, _ int, _ float64) float64 { return r.NormFloat64() }}

	special = []kind{
		{"all equal", func(*rand.Rand, int, int, float64) float64 { return 0.7001953125 /* 717 / 1024 */ }},
		{"huge and small in turn", func(_ *rand.Rand, k, _ int, _ float64) float64 { return []float64{0x1p50, -0x1p-50}[k%2] }},
		// float32 cannot hold it with the others in one number, float64 can: errors
		// of every addition to a number beyond that would not cancel.
		{"one huge", spot(0x1p30)},
		{"one NaN", spot(math.NaN())},
		{"one Inf", spot(math.Inf(1))},
		{"one -Inf", spot(math.Inf(-1))},
		{"-0", func(*rand.Rand, int, int, float64) float64 { return math.Copysign(0, -1) }},
		{"denormals", func(r *rand.Rand, _, _ int, tiny float64) float64 { return tiny * float64(r.IntN(2001)-1000) }},
	}
)

// spot is random numbers with v at one place; three quarters of the way, no
// edge of a tile or vector in most shapes.
func spot(v float64) func(*rand.Rand, int, int, float64) float64 {
	return func(r *rand.Rand, k, n int, _ float64) float64 {
		if k == n*3/4 {
			return v
		}
		return float64(r.IntN(2000)-1000+1) / 1024
	}
}

// inputs draws the inputs of a case, as float64 numbers that dt can hold.
func (k kind) inputs(r *rand.Rand, c ops.Case, dt kernels.Dtype) [][]float64 {
	tiny := float64(math.SmallestNonzeroFloat64)
	if dt == kernels.Float32 {
		tiny = math.SmallestNonzeroFloat32
	}
	xs := make([][]float64, len(c.Shapes))
	for i, s := range c.Shapes {
		xs[i] = make([]float64, s.TotalSize())
		for j := range xs[i] {
			xs[i][j] = fit(dt, k.draw(r, j, len(xs[i]), tiny))
		}
	}
	return xs
}

// fit gives a number that dt can hold: x rounded, or for integers 100 x without
// its fraction and, where it is too large, its high bits.
func fit(dt kernels.Dtype, x float64) float64 {
	whole := int64(0)
	if 100*math.Abs(x) < 1<<62 {
		whole = int64(100 * x)
	}
	switch dt {
	case kernels.Float32:
		return float64(float32(x))
	case kernels.Float64:
		return x
	case kernels.Uint8:
		return float64(uint8(whole))
	case kernels.Int32:
		return float64(int32(whole))
	case kernels.Int:
		return float64(int(whole))
	}
	return float64(whole)
}

// encode gives numbers as the bytes of dt.
func encode(dt kernels.Dtype, x []float64) []byte {
	switch dt {
	case kernels.Float32:
		return encodeAs[float32](x)
	case kernels.Uint8:
		return encodeAs[uint8](x)
	case kernels.Int32:
		return encodeAs[int32](x)
	case kernels.Int64:
		return encodeAs[int64](x)
	case kernels.Int:
		return encodeAs[int](x)
	}
	return encodeAs[float64](x)
}

func encodeAs[T kernels.Element](x []float64) []byte {
	y := make([]T, len(x))
	for i := range x {
		y[i] = T(x[i])
	}
	return kernels.Bytes(y)
}

// decode gives the bytes of dt as numbers; integers are below 2^53.
func decode(dt kernels.Dtype, b []byte) []float64 {
	switch dt {
	case kernels.Float32:
		return decodeAs[float32](b)
	case kernels.Uint8:
		return decodeAs[uint8](b)
	case kernels.Int32:
		return decodeAs[int32](b)
	case kernels.Int64:
		return decodeAs[int64](b)
	case kernels.Int:
		return decodeAs[int](b)
	}
	return decodeAs[float64](b)
}

func decodeAs[T kernels.Element](b []byte) []float64 {
	x := make([]float64, 0, len(b)/8)
	for _, e := range kernels.Elements[T](b) {
		x = append(x, float64(e))
	}
	return x
}

func encodeAll(dt kernels.Dtype, xs [][]float64) [][]byte {
	bs := make([][]byte, len(xs))
	for i := range xs {
		bs[i] = encode(dt, xs[i])
	}
	return bs
}

// valuesOf gives numbers as Gorgonia values of the case's shapes.
func valuesOf(c ops.Case, dt kernels.Dtype, xs [][]float64) []gorgonia.Value {
	vs := make([]gorgonia.Value, len(xs))
	for i, s := range c.Shapes {
		var mem []byte
		vs[i], mem = values.New(dt, s)
		copy(mem, encode(dt, xs[i]))
	}
	return vs
}

// closeTo holds bytes of dt against a reference.
func closeTo(dt kernels.Dtype, got []byte, ref, magnitude []float64, tolerance float64) error {
	if dt == kernels.Float32 {
		return compare.Close(kernels.Elements[float32](got), ref, magnitude, tolerance, 0)
	}
	return compare.Close(decode(dt, got), ref, magnitude, tolerance, 0)
}

// A runner runs a plan and says where it wrote what it must not.
type runner func(p *kernels.Plan, inputs [][]byte, out []byte) error

// onGPU runs a plan on CUDA device 0, operands guarded in its memory.
func onGPU(p *kernels.Plan, inputs [][]byte, out []byte) error {
	return cudaops.RunPlan(0, p, inputs, out)
}

// onHost runs a plan's Go bodies, with guards around the output and the
// scratch memory, both poisoned.
func onHost(p *kernels.Plan, inputs [][]byte, out []byte) error {
	const guard = 256
	before := make([][]byte, len(inputs))
	for i := range inputs {
		before[i] = bytes.Clone(inputs[i])
	}
	guarded := func(size int64) (all, inner []byte) {
		all = kernels.Bytes(make([]float64, (size+7)/8+2*guard/8))
		for i := range all {
			all[i] = poison
		}
		return all, all[guard : guard+size : guard+size]
	}
	allOut, result := guarded(p.Out)
	allScratch, scratch := guarded(p.Scratch)
	if err := p.Run(inputs, result, scratch); err != nil {
		return err
	}
	for i := range inputs {
		if !bytes.Equal(inputs[i], before[i]) {
			return fmt.Errorf("the plan wrote its input %d", i)
		}
	}
	for name, b := range map[string]struct {
		all  []byte
		size int64
	}{"output": {allOut, p.Out}, "scratch": {allScratch, p.Scratch}} {
		for i, v := range b.all {
			if (i < guard || int64(i) >= guard+b.size) && v != poison {
				return fmt.Errorf("the plan wrote outside its %s, at byte %d of %d", name, i-guard, b.size)
			}
		}
	}
	copy(out, result)
	return nil
}

// poison in every byte is a NaN of a payload that no arithmetic makes.
const poison = 0xff

// checkPlan runs a plan from dt to result three times: every element written, all
// runs of the same bits, unless the order of atomics decides them, and the values
// right.
func checkPlan(run runner, p *kernels.Plan, dt, result kernels.Dtype, xs [][]float64, ref, magnitude []float64, tolerance float64, atomic bool) error {
	var outs [][]byte
	for i := range 3 {
		out := bytes.Repeat([]byte{poison}, int(p.Out))
		if err := run(p, encodeAll(dt, xs), out); err != nil {
			return err
		}
		size := int(result.Size())
		unwritten := bytes.Repeat([]byte{poison}, size)
		for k := 0; k < len(out); k += size {
			if bytes.Equal(out[k:k+size], unwritten) {
				return fmt.Errorf("element %d of %d was not written", k/size, len(out)/size)
			}
		}
		if !atomic && i > 0 && !bytes.Equal(out, outs[0]) {
			return fmt.Errorf("run %d gave other bits than the first: %w", i+1, identical(result, out, outs[0]))
		}
		outs = append(outs, out)
	}
	if !atomic {
		outs = outs[:1]
	}
	for _, out := range outs {
		if err := closeTo(result, aligned(out), ref, magnitude, tolerance); err != nil {
			return fmt.Errorf("%v\n%w", p, err)
		}
	}
	return nil
}

func identical(dt kernels.Dtype, got, want []byte) error {
	if dt == kernels.Float32 {
		return compare.Identical(kernels.Elements[float32](aligned(got)), kernels.Elements[float32](aligned(want)))
	}
	return compare.Identical(decode(dt, aligned(got)), decode(dt, aligned(want)))
}

// aligned copies bytes to where elements of any type may lie.
func aligned(b []byte) []byte {
	a := kernels.Bytes(make([]float64, (len(b)+7)/8))[:len(b)]
	copy(a, b)
	return a
}

// checkCase holds the plan of a case for a device against the reference, on
// random numbers and, where the case is small, on all special ones.
func checkCase(r *rand.Rand, run runner, dev kernels.Device, s ops.Spec, c ops.Case, dt kernels.Dtype) error {
	p, result, err := planOf(c, dt, dev)
	if err != nil {
		return err
	}
	kinds := []kind{short, normal}
	if elements(c) <= 1<<13 {
		kinds = append(kinds, special...)
	}
	for _, k := range kinds {
		xs := k.inputs(r, c, dt)
		ref, magnitude := c.Reference(xs...)
		tolerance := s.Tolerance
		if dt == kernels.Float64 && tolerance > 0 {
			// Sums in double are rounded once for float32, but at every addition for
			// float64. The errors mostly cancel, in sums of any length.
			tolerance += 3
		}
		if err := checkPlan(run, p, dt, result, xs, ref, magnitude, tolerance, c.Atomic); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return nil
}

// planned are devices of other widths than the host, whose plans must be right
// too; the Go bodies run them here, the CUDA bodies in TestKernels.
var planned = []kernels.Device{
	{Name: "1 multiprocessor", Major: 7, SMs: 1, SharedOptin: 96 << 10, L2: 1 << 20},
	{Name: "132 multiprocessors", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 50 << 20, Cooperative: true},
}

// TestPlans: the Go bodies against the plain reference.
func TestPlans(t *testing.T) {
	each(t, 4<<20, func(t *testing.T, s ops.Spec, c ops.Case, dt kernels.Dtype) {
		if err := checkCase(random(t), onHost, kernels.HostDevice(), s, c, dt); err != nil {
			t.Error(err)
		}
		for _, dev := range planned {
			if elements(c) > 1<<16 {
				break
			}
			if err := checkCase(random(t), onHost, dev, s, c, dt); err != nil {
				t.Errorf("planned for %s: %v", dev.Name, err)
			}
		}
	})
}

// TestKernels: the CUDA bodies against the plain reference, and so, within
// twice its tolerance, against the Go bodies.
func TestKernels(t *testing.T) {
	dev := gpu(t)
	each(t, 4<<20, func(t *testing.T, s ops.Spec, c ops.Case, dt kernels.Dtype) {
		if err := checkCase(random(t), onGPU, dev, s, c, dt); err != nil {
			t.Error(err)
		}
	})
}

type machine struct {
	name string
	make func(*gorgonia.ExprGraph) (gorgonia.VM, error)
}

// machines are all that can run a graph here.
func machines() []machine {
	ms := append(gorgonias[:len(gorgonias):len(gorgonias)],
		machine{"stheno", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return stheno.NewVM(g) }},
		machine{"stheno on the host", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return cudaops.NewVM(g, cudaops.OnHost()) }},
	)
	if _, err := stheno.Devices(); err == nil {
		ms = append(ms, machine{"stheno on a GPU, strict", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) {
			return cudaops.NewVM(g, cudaops.OnDevice(0), cudaops.Strict())
		}})
	}
	return ms
}

// checkMachine runs a case's graph on a machine twice, on the values given,
// which stay as they were.
func checkMachine(m machine, s ops.Spec, c ops.Case, dt kernels.Dtype, vs []gorgonia.Value) (err error) {
	xs := make([][]float64, len(vs))
	for i, v := range vs {
		if xs[i], err = numbers(v); err != nil {
			return err
		}
	}
	ref, magnitude := c.Reference(xs...)
	_, out, err := node(c, dt, vs)
	if err != nil {
		return err
	}
	result, _ := values.Dtype(out.Dtype())
	if m.name == "LispMachine" && !result.IsFloat() { // it makes a derivative for each value, and none for integers
		return nil
	}
	vm, err := m.make(out.Graph())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	var first []byte
	for run := range 2 {
		if run > 0 {
			vm.Reset()
		}
		if err := vm.RunAll(); err != nil {
			return err
		}
		mem, err := values.Bytes(out.Value())
		if err != nil {
			return err
		}
		if !out.Value().Shape().Eq(out.Shape()) {
			return fmt.Errorf("the value has shape %v, the node %v", out.Value().Shape(), out.Shape())
		}
		if run == 0 {
			first = bytes.Clone(mem)
		} else if !c.Atomic && !bytes.Equal(first, mem) {
			return fmt.Errorf("the second run gave other bits: %w", identical(result, mem, first))
		}
		if err := closeTo(result, aligned(mem), ref, magnitude, s.Tolerance); err != nil {
			return fmt.Errorf("run %d: %w", run+1, err)
		}
	}
	for i, v := range vs {
		after, err := numbers(v)
		if err != nil {
			return err
		}
		if err := compare.Identical(after, xs[i]); err != nil {
			return fmt.Errorf("input %d was written: %w", i, err)
		}
	}
	return nil
}

// numbers gives a value as float64, row-major.
func numbers(v gorgonia.Value) ([]float64, error) {
	mem, err := values.Bytes(v)
	if err != nil {
		return nil, err
	}
	dt, _ := values.Dtype(v.Dtype())
	return decode(dt, mem), nil
}

// TestMachines: graphs of one op on every machine.
func TestMachines(t *testing.T) {
	each(t, 1<<17, func(t *testing.T, s ops.Spec, c ops.Case, dt kernels.Dtype) {
		r := random(t)
		for _, m := range machines() {
			if err := checkMachine(m, s, c, dt, valuesOf(c, dt, short.inputs(r, c, dt))); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	})
}

// strided gives numbers as tensors whose memory is not their elements in order.
func strided(layout string, shape tensor.Shape, dt kernels.Dtype, x []float64) (gorgonia.Value, error) {
	if shape.TotalSize() <= 1 { // nothing to stride over; slices of one element are scalars
		return valuesOf(ops.Case{Shapes: []tensor.Shape{shape}}, dt, [][]float64{x})[0], nil
	}
	of := tensor.Of(values.Tensor(dt))
	var d *tensor.Dense
	switch layout {
	case "transposed":
		reversed := make([]int, len(shape))
		for a := range shape {
			reversed[a] = shape[len(shape)-1-a]
		}
		d = tensor.New(tensor.WithShape(reversed...), of)
		if err := d.T(); err != nil {
			return nil, err
		}
	case "column-major":
		d = tensor.New(tensor.WithShape(shape...), of, tensor.AsFortran(nil))
	case "sliced":
		outer, cut := make([]int, len(shape)), make([]tensor.Slice, len(shape))
		for a, e := range shape {
			if outer[a] = e; e > 1 { // a slice of one element would lose its axis
				outer[a], cut[a] = e+3, tensor.S(1, e+1)
			}
		}
		view, err := tensor.New(tensor.WithShape(outer...), of).Slice(cut...)
		if err != nil {
			return nil, err
		}
		d = view.(*tensor.Dense)
	}
	if !d.Shape().Eq(shape) {
		return nil, fmt.Errorf("the test made a %s tensor of shape %v, want %v", layout, d.Shape(), shape)
	}
	for k, v := range x {
		at, rest := make([]int, len(shape)), k
		for a := len(shape) - 1; a >= 0; a-- {
			at[a], rest = rest%shape[a], rest/shape[a]
		}
		e := reflect.ValueOf(v).Convert(values.Tensor(dt).Type)
		if err := d.SetAt(e.Interface(), at...); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// TestStrides: transposed, sliced and column-major tensors as inputs.
func TestStrides(t *testing.T) {
	each(t, 1<<11, func(t *testing.T, s ops.Spec, c ops.Case, dt kernels.Dtype) {
		r := random(t)
		for _, layout := range []string{"transposed", "sliced", "column-major"} {
			for _, m := range machines() {
				xs := short.inputs(r, c, dt)
				vs := make([]gorgonia.Value, len(xs))
				for i := range xs {
					var err error
					if vs[i], err = strided(layout, c.Shapes[i], dt, xs[i]); err != nil {
						t.Fatal(err)
					}
					back, err := numbers(vs[i])
					if err != nil {
						t.Fatal(err)
					}
					if err := compare.Identical(back, xs[i]); err != nil {
						t.Fatalf("%s input %d holds other numbers than the test's: %v", layout, i, err)
					}
				}
				if err := checkMachine(m, s, c, dt, vs); err != nil {
					t.Errorf("%s on %s: %v", layout, m.name, err)
				}
			}
		}
	})
}

// checkGradients holds the gradients of a case against differences.
func checkGradients(r *rand.Rand, c ops.Case, dt kernels.Dtype, opts ...gradcheck.Option) error {
	vs := valuesOf(c, dt, normal.inputs(r, c, dt))
	return gradcheck.Check(c.Build, vs, append(opts, gradcheck.Seed(r.Uint64()), gradcheck.MaxElements(10))...)
}

// adjoint is the derivative of a case by input i as a case of its own, on the
// case's inputs and the gradient of its output: its gradients are second
// derivatives.
func adjoint(c ops.Case, i int, out tensor.Shape) ops.Case {
	n := len(c.Shapes)
	return ops.Case{
		Shapes: append(append([]tensor.Shape(nil), c.Shapes...), out),
		Build: func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			y, err := c.Build(in[:n]...)
			if err != nil {
				return nil, err
			}
			ds, err := y.Op().(gorgonia.SDOp).SymDiff(in[:n], y, in[n])
			if err != nil {
				return nil, err
			}
			return ds[i], nil
		},
	}
}

// TestGradients: SymDiff on every machine but the LispMachine, and DoDiff.
func TestGradients(t *testing.T) {
	eachDifferentiable(t, 5000, func(t *testing.T, s ops.Spec, c ops.Case, dt kernels.Dtype) {
		r := random(t)
		if err := checkGradients(r, c, dt, gradcheck.Modes(gradcheck.DoDiff)); err != nil {
			t.Error(err)
		}
		for _, m := range machines() {
			if m.name == "LispMachine" || strings.Contains(m.name, "strict") { // the check's loss is no kernel
				continue
			}
			if err := checkGradients(r, c, dt, gradcheck.Modes(gradcheck.SymDiff), gradcheck.Machine(m.make)); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	})
}

// TestSecondDerivatives: the adjoints of an op have gradients too.
func TestSecondDerivatives(t *testing.T) {
	eachDifferentiable(t, 600, func(t *testing.T, s ops.Spec, c ops.Case, dt kernels.Dtype) {
		_, out, err := node(c, dt, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Shapes {
			err := checkGradients(random(t), adjoint(c, i, out.Shape()), dt)
			if errors.Is(err, stheno.ErrNoDevice) { // gradients add up by an op of Gorgonia's
				t.Skipf("with the tag cuda the graph needs a GPU: %v", err)
			}
			if err != nil {
				t.Errorf("derivative by input %d: %v", i, err)
			}
		}
	})
}

// TestNoGradient: ops without a gradient say so, whichever way Gorgonia asks.
func TestNoGradient(t *testing.T) {
	for _, s := range ops.All() {
		if !s.NoGradient {
			continue
		}
		for _, c := range s.Cases {
			if c.Bench || elements(c) > 1<<12 {
				continue
			}
			in, out, err := node(c, s.Dtypes()[0], valuesOf(c, s.Dtypes()[0], normal.inputs(random(t), c, s.Dtypes()[0])))
			if err != nil {
				t.Fatal(err)
			}
			op := out.Op().(interface {
				gorgonia.SDOp
				gorgonia.ADOp
			})
			if wrt := op.DiffWRT(len(in)); slices.Contains(wrt, false) {
				t.Errorf("%v: DiffWRT is %v, want all, so that SymDiff is asked", op, wrt)
			}
			_, symbolic := op.SymDiff(in, out, out)
			for name, err := range map[string]error{"SymDiff": symbolic, "DoDiff": op.DoDiff(gorgonia.ExecutionContext{}, in, out)} {
				if err == nil || !strings.Contains(err.Error(), "has no gradient: ") {
					t.Errorf("%v: %s gave %v, want an error that says why there is no gradient", op, name, err)
				}
			}
			// Of a cost of integers Grad gives neither nodes nor an error.
			if grads, err := gorgonia.Grad(gorgonia.Must(gorgonia.Sum(out)), in...); err == nil && len(grads) > 0 {
				t.Errorf("%v: Grad gave %v", op, grads)
			}
		}
	}
}

// TestBadInput: every constructor says what is wrong, by name, and never
// panics.
func TestBadInput(t *testing.T) {
	type test struct {
		name, op string
		build    func(g *gorgonia.ExprGraph) (*gorgonia.Node, error)
	}
	vector := func(g *gorgonia.ExprGraph, dt tensor.Dtype, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName("x"))
	}
	var tests []test
	for _, s := range ops.All() { // what is wrong for every op
		c := s.Cases[0]
		with := func(what string, i int, bad func(g *gorgonia.ExprGraph) *gorgonia.Node) {
			tests = append(tests, test{fmt.Sprintf("%s: %s as input %d", s.Name, what, i), s.Name, func(g *gorgonia.ExprGraph) (*gorgonia.Node, error) {
				in := make(gorgonia.Nodes, len(c.Shapes))
				for k, shape := range c.Shapes {
					in[k] = vector(g, tensor.Float32, shape...)
				}
				in[i] = bad(g)
				return c.Build(in...)
			}})
		}
		for i, shape := range c.Shapes {
			with("nil", i, func(*gorgonia.ExprGraph) *gorgonia.Node { return nil })
			if !slices.Contains(s.Dtypes(), kernels.Int) {
				with("int", i, func(g *gorgonia.ExprGraph) *gorgonia.Node { return vector(g, tensor.Int, shape...) })
			}
			with("bool", i, func(g *gorgonia.ExprGraph) *gorgonia.Node { return vector(g, tensor.Bool, shape...) })
			with("an empty tensor", i, func(g *gorgonia.ExprGraph) *gorgonia.Node { return vector(g, tensor.Float32, 3, 0) })
			with("a node without shape", i, func(g *gorgonia.ExprGraph) *gorgonia.Node {
				return gorgonia.NewTensor(g, tensor.Float32, 2, gorgonia.WithName("x"))
			})
			if len(c.Shapes) == 1 {
				continue
			}
			with("float64 among float32", i, func(g *gorgonia.ExprGraph) *gorgonia.Node { return vector(g, tensor.Float64, shape...) })
			with("a node of another graph", i, func(*gorgonia.ExprGraph) *gorgonia.Node {
				return vector(gorgonia.NewGraph(), tensor.Float32, shape...)
			})
			with("another shape", i, func(g *gorgonia.ExprGraph) *gorgonia.Node { return vector(g, tensor.Float32, 97, 89, 83, 79) })
		}
	}
	unary := func(name, op string, f func(x *gorgonia.Node) (*gorgonia.Node, error), shape ...int) {
		tests = append(tests, test{name, op, func(g *gorgonia.ExprGraph) (*gorgonia.Node, error) {
			return f(vector(g, tensor.Float64, shape...))
		}})
	}
	binary := func(name, op string, f func(a, b *gorgonia.Node) (*gorgonia.Node, error), a, b []int) {
		tests = append(tests, test{name, op, func(g *gorgonia.ExprGraph) (*gorgonia.Node, error) {
			return f(vector(g, tensor.Float64, a...), vector(g, tensor.Float64, b...))
		}})
	}
	along := func(axes ...int) func(*gorgonia.Node) (*gorgonia.Node, error) {
		return func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Sum(x, axes...) }
	}
	mean := func(axes ...int) func(*gorgonia.Node) (*gorgonia.Node, error) {
		return func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Mean(x, axes...) }
	}
	window := func(radius int, opts ...ops.WindowOption) func(*gorgonia.Node) (*gorgonia.Node, error) {
		return func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.WindowSum(x, radius, opts...) }
	}
	matMul := func(opts ...ops.MatMulOption) func(a, b *gorgonia.Node) (*gorgonia.Node, error) {
		return func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return ops.MatMul(a, b, opts...) }
	}
	unary("Sum: axis below 0", "Sum", along(-1), 3, 4)
	unary("Sum: axis too large", "Sum", along(2), 3, 4)
	unary("Sum: axis twice", "Sum", along(1, 1), 3, 4)
	unary("Sum: axis of a scalar", "Sum", along(0))
	unary("Mean: axis too large", "Mean", mean(0, 5), 3, 4)
	unary("WindowSum: radius below 0", "WindowSum", window(-1), 9)
	unary("WindowSum: radius too large", "WindowSum", window(5, ops.Valid()), 10)
	unary("WindowSum: greatest radius", "WindowSum", window(math.MaxInt, ops.Valid()), 10)
	unary("WindowSum: scalar", "WindowSum", window(0))
	versioned := func(v ops.Version, axes ...int) func(*gorgonia.Node) (*gorgonia.Node, error) {
		return func(x *gorgonia.Node) (*gorgonia.Node, error) { return v.Sum(x, axes...) }
	}
	unary("Sum: version below 0", "Sum", versioned(-1), 3, 4)
	unary("Sum: version too large", "Sum", versioned(10), 3, 4)
	unary("Sum: one axis by a version", "Sum[0] version 4", versioned(4, 0), 3, 4)
	unary("Sum: the matrices' version on a vector", "Sum[0] version 9", versioned(9), 7)
	histogram := func(bins int, lo, hi float64) func(*gorgonia.Node) (*gorgonia.Node, error) {
		return func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Histogram(x, bins, lo, hi) }
	}
	unary("Histogram: no bin", "Histogram", histogram(0, 0, 1), 7)
	unary("Histogram: too many bins", "Histogram", histogram(math.MaxInt, 0, 1), 7)
	unary("Histogram: empty range", "Histogram", histogram(3, 1, 1), 7)
	unary("Histogram: range backwards", "Histogram", histogram(3, 1, 0), 7)
	unary("Histogram: bound is NaN", "Histogram", histogram(3, 0, math.NaN()), 7)
	unary("Histogram: infinite bound", "Histogram", histogram(3, 0, math.Inf(1)), 7)
	unary("Histogram: infinite range", "Histogram", histogram(3, -math.MaxFloat64, math.MaxFloat64), 7)
	unary("Histogram: range too small", "Histogram", histogram(3, 0, math.SmallestNonzeroFloat64), 7)
	unary("Histogram: version too large", "Histogram", func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.Version(4).Histogram(x, 3, 0, 1)
	}, 7)
	unary("WindowSum: version too large", "WindowSum", func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Version(4).WindowSum(x, 1) }, 9)
	unary("MatMul: version too large", "MatMul", func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Version(8).MatMul(x, x) }, 3, 3)
	unary("Add: version below 0", "Add", func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Version(-1).Add(x, x) }, 3)
	binary("Add: other length", "Add", ops.Add, []int{3}, []int{4})
	binary("Add: other rank", "Add", ops.Add, []int{3}, []int{3, 1})
	binary("Dot: other length", "Dot", ops.Dot, []int{3}, []int{4})
	binary("Dot: column and vector", "Dot", ops.Dot, []int{3, 1}, []int{3})
	binary("Dot: rank 3", "Dot", ops.Dot, []int{2, 3, 4}, []int{2, 3, 4})
	binary("Dot: scalars", "Dot", ops.Dot, nil, nil)
	binary("Dot: matrices by a version", "Dot version 2", ops.Version(2).Dot, []int{3, 4}, []int{3, 4})
	binary("Dot: version too large", "Dot", ops.Version(4).Dot, []int{3}, []int{3})
	binary("MatMul: inner sizes", "MatMul", matMul(), []int{3, 4}, []int{5, 2})
	binary("MatMul: inner sizes, transposed", "MatMul", matMul(ops.TransB()), []int{3, 4}, []int{4, 2})
	binary("MatMul: leading sizes", "MatMul", matMul(), []int{2, 3, 4}, []int{3, 4, 5})
	binary("MatMul: two vectors", "MatMul", matMul(), []int{3}, []int{4})
	binary("MatMul: transpose of a vector", "MatMul", matMul(ops.TransA()), []int{3}, []int{3})
	binary("MatMul: more elements than memory can hold", "MatMul", matMul(), []int{1 << 40, 1}, []int{1, 1 << 40})
	binary("MatMul: nil option", "MatMul", matMul(nil), []int{3, 3}, []int{3, 3})
	unary("WindowSum: nil option", "WindowSum", window(1, nil), 9)
	unary("Broadcast: no copies", "Broadcast", func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Broadcast(x, 0, 0) }, 9)
	unary("Broadcast: axis too large", "Broadcast", func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Broadcast(x, 3, 2) }, 9)
	binary("MatMul: matrix and a column's length", "MatMul", matMul(), []int{3, 4}, []int{3})
	binary("MatMul: two vectors by a version", "MatMul version 7", func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return ops.Version(7).MatMul(a, b) }, []int{3}, []int{3})
	binary("MatMul: scalars", "MatMul", matMul(), nil, nil)
	iterate := func(name string, v ops.Version, steps int, w1, w2, x []int) {
		tests = append(tests, test{"Iterate: " + name, "Iterate", func(g *gorgonia.ExprGraph) (*gorgonia.Node, error) {
			return v.Iterate(vector(g, tensor.Float64, w1...), vector(g, tensor.Float64, w2...), vector(g, tensor.Float64, x...), steps)
		}})
	}
	iterate("no steps", 0, 0, []int{3, 3}, []int{3, 3}, []int{3})
	iterate("too many steps", 0, 1<<20, []int{3, 3}, []int{3, 3}, []int{3})
	iterate("w1 of another size", 0, 2, []int{3, 4}, []int{3, 3}, []int{3})
	iterate("w2 of another size", 0, 2, []int{3, 3}, []int{4, 4}, []int{3})
	iterate("x is a matrix", 0, 2, []int{3, 3}, []int{3, 3}, []int{3, 3})
	iterate("scalars", 0, 2, nil, nil, nil)
	iterate("version below 0", -1, 2, []int{3, 3}, []int{3, 3}, []int{3})
	iterate("version too large", 99, 2, []int{3, 3}, []int{3, 3}, []int{3})
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panic: %v", p)
				}
			}()
			n, err := c.build(gorgonia.NewGraph())
			if err == nil {
				t.Fatalf("got node %v and no error", n)
			}
			if !strings.Contains(err.Error(), c.op) {
				t.Errorf("the error does not name %s: %v", c.op, err)
			}
		})
	}
}

// TestBadValues: values that do not fit the graph are errors of the machines.
func TestBadValues(t *testing.T) {
	x32 := tensor.New(tensor.WithBacking([]float32{1, 2, 3}))
	for name, v := range map[string]gorgonia.Value{
		"none":          nil,
		"another shape": tensor.New(tensor.WithBacking([]float32{1, 2})),
		"another type":  tensor.New(tensor.WithBacking([]float64{1, 2, 3})),
		"scalar":        gorgonia.NewF32(1),
		"a column":      tensor.New(tensor.WithShape(3, 1), tensor.WithBacking([]float32{1, 2, 3})),
		"no elements":   tensor.New(tensor.WithShape(0), tensor.WithBacking([]float32{})),
	} {
		g := gorgonia.NewGraph()
		a := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(3), gorgonia.WithName("a"))
		b := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(3), gorgonia.WithName("b"))
		n, err := ops.Add(a, b)
		if err != nil {
			t.Fatal(err)
		}
		op := n.Op()
		if out, err := op.Do(x32, v); err == nil || !strings.Contains(err.Error(), "Add: input 1") {
			t.Errorf("%s: Do gave %v and error %v, want one that names input 1", name, out, err)
		}
	}
}

// broken is an Add whose body is replaced.
func broken(body func(a, b, out []float64)) *kernels.Plan {
	p := kernels.Add(kernels.HostDevice(), kernels.Float64, 7)
	p.Launches[0].Kernel = &kernels.Kernel{Module: "add", Entry: "broken", Body: func(c kernels.Call) {
		body(kernels.Slice[float64](c, 0), kernels.Slice[float64](c, 1), kernels.Slice[float64](c, 2))
	}}
	return p
}

// TestSuiteCatchesWrongKernels: kernels that are wrong in one way each fail
// the function that all kernels pass.
func TestSuiteCatchesWrongKernels(t *testing.T) {
	add := func(a, b, out []float64) {
		for i := range out {
			out[i] = a[i] + b[i]
		}
	}
	beyond := func(x []float64, k int) *float64 { return (*float64)(unsafe.Add(unsafe.Pointer(&x[0]), k*8)) }
	runs := 0.0
	for _, c := range []struct {
		name, want string
		body       func(a, b, out []float64)
	}{
		{"right", "", add},
		{"drops the last element", "element 6 of 7 was not written", func(a, b, out []float64) { add(a, b, out[:6]) }},
		{"drops the first element", "element 0 of 7 was not written", func(a, b, out []float64) { add(a[1:], b[1:], out[1:]) }},
		{"writes past the end", "outside its output", func(a, b, out []float64) { add(a, b, out); *beyond(out, 7) = 1 }},
		{"writes before the start", "outside its output", func(a, b, out []float64) { add(a, b, out); *beyond(out, -1) = 1 }},
		{"writes an input", "wrote its input 1", func(a, b, out []float64) { add(a, b, out); b[3]++ }},
		{"is off by a few epsilons", "element 4: got", func(a, b, out []float64) {
			add(a, b, out)
			out[4] += 0x1p-49 * (math.Abs(a[4]) + math.Abs(b[4]))
		}},
		{"gives a NaN", "element 2: got NaN", func(a, b, out []float64) { add(a, b, out); out[2] = math.NaN() }},
		{"gives an Inf", "element 2: got +Inf", func(a, b, out []float64) { add(a, b, out); out[2] = math.Inf(1) }},
		{"changes from run to run", "gave other bits", func(a, b, out []float64) {
			add(a, b, out)
			runs++
			out[0] = math.Float64frombits(math.Float64bits(out[0]) + uint64(runs))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := random(t)
			x := ops.Case{Shapes: []tensor.Shape{{7}, {7}}}
			xs := normal.inputs(r, x, kernels.Float64)
			ref, magnitude := make([]float64, 7), make([]float64, 7)
			for i := range ref {
				ref[i] = xs[0][i] + xs[1][i]
				magnitude[i] = math.Abs(xs[0][i]) + math.Abs(xs[1][i])
			}
			err := checkPlan(onHost, broken(c.body), kernels.Float64, kernels.Float64, xs, ref, magnitude, 1, false)
			if c.want == "" && err != nil {
				t.Error(err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// inflated is 1.01 times an op, under the op's own gradient, which so is wrong.
type inflated struct{ differentiable }

// differentiable is what the machines of the host ask of an op.
type differentiable interface {
	gorgonia.SDOp
	gorgonia.ADOp
}

func (o inflated) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	v, err := o.differentiable.Do(in...)
	if err != nil {
		return nil, err
	}
	mem, err := values.Bytes(v)
	if err != nil {
		return nil, err
	}
	if v.Dtype() == tensor.Float32 {
		for i := range kernels.Elements[float32](mem) {
			kernels.Elements[float32](mem)[i] *= 1.01
		}
		return v, nil
	}
	for i := range kernels.Elements[float64](mem) {
		kernels.Elements[float64](mem)[i] *= 1.01
	}
	return v, nil
}

func (o inflated) UsePreallocDo(_ gorgonia.Value, in ...gorgonia.Value) (gorgonia.Value, error) {
	return o.Do(in...)
}

// WriteHash differs from the op's: a graph keeps one node of one hash.
func (o inflated) WriteHash(h hash.Hash) { fmt.Fprintf(h, "inflated %v", o.differentiable) }

func (o inflated) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

// TestSuiteCatchesWrongGradients: for every op, a gradient that is wrong by one
// percent fails the function that all gradients pass, in both modes.
func TestSuiteCatchesWrongGradients(t *testing.T) {
	eachDifferentiable(t, 600, func(t *testing.T, s ops.Spec, c ops.Case, dt kernels.Dtype) {
		lying := c
		lying.Build = func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			y, err := c.Build(in...)
			if err != nil {
				return nil, err
			}
			return gorgonia.ApplyOp(inflated{y.Op().(differentiable)}, in...)
		}
		for _, mode := range []gradcheck.Mode{gradcheck.SymDiff, gradcheck.DoDiff} {
			err := checkGradients(random(t), lying, dt, gradcheck.Modes(mode))
			var m *gradcheck.Mismatch
			if !errors.As(err, &m) || m.Mode != mode {
				t.Errorf("%v: got %v, want a *Mismatch", mode, err)
			}
		}
	})
}

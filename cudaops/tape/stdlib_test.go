//go:build cuda

package tape

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"gorgonia.org/gorgonia"
	"gorgonia.org/gorgonia/cuda"
	"gorgonia.org/tensor"
)

// registered are the names that a device gets, in Gorgonia's way of writing.
func registered(t *testing.T) (names []string) {
	t.Helper()
	err := register(
		func(int) (*driver.Device, error) { return &driver.Device{Name: "a device", Major: 9}, nil },
		func(int) error { return nil },
		func(module, image string, kernels []string) {
			for _, k := range kernels {
				if !strings.Contains(image, k) {
					t.Errorf("the image of %s lacks the kernel %s", module, k)
				}
				names = append(names, module+"."+k)
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

var wanted = regexp.MustCompile(`does not have the function "([^"]+)"`)

// askedBinary are the names that Gorgonia's engine looks functions of two
// operands up by: the error of an engine with no functions names the one it lacks. All its
// methods of these forms are asked.
func askedBinary(t *testing.T) (names []string) {
	t.Helper()
	e := reflect.ValueOf(new(cuda.Engine))
	none := []tensor.FuncOpt{}
	for i := range e.NumMethod() {
		method, form := e.Method(i), e.Type().Method(i)
		ask := func(args ...any) {
			in := make([]reflect.Value, len(args))
			for k, a := range args {
				in[k] = reflect.ValueOf(a)
			}
			err, _ := method.CallSlice(in)[1].Interface().(error)
			name := wanted.FindStringSubmatch(fmt.Sprint(err))
			if name == nil {
				t.Fatalf("%s: %v, want the name of the function that is missing", form.Name, err)
			}
			names = append(names, name[1])
		}
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			vector, scalar := tensor.New(tensor.Of(dt), tensor.WithShape(2)), tensor.New(tensor.Of(dt), tensor.WithShape())
			switch method.Interface().(type) {
			case func(tensor.Tensor, tensor.Tensor, ...tensor.FuncOpt) (tensor.Tensor, error):
				ask(vector, vector, none)
				ask(vector, scalar, none)
				ask(scalar, vector, none)
				ask(scalar, scalar, none)
			case func(tensor.Tensor, any, bool, ...tensor.FuncOpt) (tensor.Tensor, error):
				ask(vector, scalar, true, none)
				ask(vector, scalar, false, none)
			}
		}
	}
	return names
}

// unaryFunctions are all of Gorgonia's element-wise functions of one operand.
var unaryFunctions = []func(*gorgonia.Node) (*gorgonia.Node, error){
	gorgonia.Abs, gorgonia.Sign, gorgonia.Ceil, gorgonia.Floor, gorgonia.Sin, gorgonia.Cos, gorgonia.Exp, gorgonia.Log,
	gorgonia.Log2, gorgonia.Neg, gorgonia.Square, gorgonia.Sqrt, gorgonia.Inverse, gorgonia.InverseSqrt, gorgonia.Cube,
	gorgonia.Tanh, gorgonia.Sigmoid, gorgonia.Log1p, gorgonia.Expm1, gorgonia.Softplus,
}

// askedUnary are the names that Gorgonia's ops of one operand are looked up by.
func askedUnary(t *testing.T) (names []string) {
	t.Helper()
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		g := gorgonia.NewGraph()
		x := gorgonia.NewVector(g, dt, gorgonia.WithName("x"), gorgonia.WithShape(2))
		for _, f := range unaryFunctions {
			op := gorgonia.Must(f(x)).Op()
			if got := reflect.TypeOf(op).String(); got != "gorgonia.elemUnaryOp" {
				t.Fatalf("%v is a %s", op, got)
			}
			names = append(names, fmt.Sprintf("elemunaryop.%v_f%d", op, dt.Size()*8)) // as its CUDADo writes it
		}
	}
	return names
}

// The kernels registered are those that Gorgonia asks for, no more and no fewer.
func TestStandardNames(t *testing.T) {
	binary := askedBinary(t)
	for _, form := range []string{"vv", "vs", "sv", "ss"} {
		for _, name := range []string{"add", "pow", "lt", "ne"} {
			if want := "elembinop." + name + "_" + form + "_f32"; !slices.Contains(binary, want) {
				t.Errorf("Gorgonia's engine was not made to ask for %s", want)
			}
		}
	}
	want := append(binary, askedUnary(t)...)
	slices.Sort(want)
	want = slices.Compact(want)
	got := registered(t)
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("Gorgonia asks for %s, which is not registered", name)
		}
	}
	for _, name := range got {
		if !slices.Contains(want, name) {
			t.Errorf("%s is registered, and Gorgonia never asks for it", name)
		}
	}
}

// Where the device or its driver is too old, nothing is registered, and the
// error says so.
func TestRegisterRefuses(t *testing.T) {
	volta := &driver.Device{Name: "a device", Major: 7}
	fits := func(int) error { return nil }
	for name, c := range map[string]struct {
		device *driver.Device
		none   error
		check  func(version int) error
		want   string
	}{
		"no device":    {nil, driver.ErrNoDevice, fits, "no CUDA device"},
		"an old one":   {&driver.Device{Name: "a Tesla P100", Major: 6}, nil, fits, "compute capability 6.0 is too old"},
		"its driver":   {volta, nil, func(v int) error { return fmt.Errorf("want CUDA %d", v) }, "want CUDA 12000"},
		"a new device": {&driver.Device{Name: "a device", Major: 99}, nil, func(v int) error { return fmt.Errorf("want CUDA %d", v) }, "want CUDA 12090"},
	} {
		err := register(func(int) (*driver.Device, error) { return c.device, c.none }, c.check, func(module, _ string, _ []string) {
			t.Errorf("%s: %s is registered", name, module)
		})
		if err == nil || !strings.Contains(err.Error(), c.want) || c.none != nil && !errors.Is(err, c.none) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

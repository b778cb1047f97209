package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// foreign writes a file of another program with tensors of F32, each element its index.
func foreign(t testing.TB, tensors ...safetensors.Tensor) (path string) {
	for i := range tensors {
		x := &tensors[i]
		n := testutil.Get[int](t)(x.Bytes())
		for k := 0; len(x.Data) < n; k++ {
			x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(float32(k)))
		}
		x.Data = x.Data[:n]
	}
	var b bytes.Buffer
	testutil.Do(t, safetensors.Write(&b, nil, tensors))
	path = filepath.Join(t.TempDir(), "foreign")
	testutil.Do(t, os.WriteFile(path, b.Bytes(), 0o666))
	return path
}

func f32(name string, shape ...int) safetensors.Tensor {
	return safetensors.Tensor{Name: name, Dtype: "F32", Shape: shape}
}

// always is a predicate of Transposed.
func always(string) bool { return true }

// Partial loads what both have, into nodes and into a Store, and says what is missing and unused.
func TestPartial(t *testing.T) {
	path := foreign(t, f32("a", 2), f32("b", 2, 3), f32("more", 1), f32("one more", 1))
	g := G.NewGraph()
	a := G.NewVector(g, tensor.Float64, G.WithName("a"), G.WithShape(2))
	c := G.NewVector(g, tensor.Float32, G.WithName("c"), G.WithShape(2), G.WithValue(tensor.New(tensor.WithBacking([]float32{7, 8}))))
	b := G.NewMatrix(g, tensor.Float32, G.WithName("x.b"), G.WithShape(3, 2))
	rename := Rename(func(name string) string {
		return map[string]string{"a": "a", "b": "x.b", "more": "more", "one more": ""}[name]
	})
	l := testutil.Get[Loaded](t)(LoadParameters(path, G.Nodes{a, c, b}, Partial(), rename, Transposed(func(name string) bool { return name == "x.b" })))
	if !slices.Equal(l.Missing, []string{"c"}) || !slices.Equal(l.Unused, []string{"more"}) || !strings.Contains(l.Note, "another program") {
		t.Errorf("got %+v", l)
	}
	if got, want := fmt.Sprint(a.Value().Data(), b.Value().Data(), c.Value().Data()), "[0 1] [0 3 1 4 2 5] [7 8]"; got != want {
		t.Errorf("got the values %s, want %s", got, want)
	}

	s := cudaops.NewStore()
	testutil.Do(t, s.SetParameters([]cudaops.Learnable{{Name: "x.b", Value: tensor.New(tensor.WithShape(3, 2), tensor.Of(tensor.Float64))},
		{Name: "c", Value: tensor.New(tensor.WithBacking([]float32{7, 8}))}}))
	l = testutil.Get[Loaded](t)(LoadStore(path, s, Partial(), rename, Transposed(always)))
	if !slices.Equal(l.Missing, []string{"c"}) || !slices.Equal(l.Unused, []string{"a", "more"}) {
		t.Errorf("a Store: got %+v", l)
	}
	list := testutil.Get[[]cudaops.Learnable](t)(s.Parameters())
	if got, want := fmt.Sprint(list[0].Value.Data(), list[1].Value.Data()), "[0 3 1 4 2 5] [7 8]"; got != want || len(list) != 2 {
		t.Errorf("a Store has %s, want %s", got, want)
	}
}

// Integers load into a node of bool if all of them are 0 or 1, into a node and into a Store.
func TestLoadBool(t *testing.T) {
	r := testutil.Random(t)
	for dtype, size := range map[string]int{"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "I32": 4, "I64": 8} {
		for _, above := range []byte{0, 1 + byte(r.IntN(254))} { // added to one of 1
			const n = 9
			data, want, at := make([]byte, n*size), make([]bool, n), r.IntN(n)
			for i := range n {
				want[i] = i == at || r.IntN(2) == 1
				if want[i] {
					data[i*size] = 1
				}
			}
			data[at*size] += above
			g := G.NewGraph()
			x := G.NewVector(g, tensor.Bool, G.WithName("x"), G.WithShape(n))
			s := cudaops.NewStore()
			testutil.Do(t, s.SetParameters([]cudaops.Learnable{{Name: "x", Value: tensor.New(tensor.WithShape(n), tensor.Of(tensor.Bool))}}))
			path := foreign(t, safetensors.Tensor{Name: "x", Dtype: dtype, Shape: []int{n}, Data: data})
			_, err := LoadParameters(path, G.Nodes{x})
			_, ofStore := LoadStore(path, s)
			if above > 0 && dtype != "BOOL" {
				if err == nil || ofStore == nil || x.Value() != nil {
					t.Errorf("%s with a number above 1: got the errors %v and %v, want errors", dtype, err, ofStore)
				}
				continue
			}
			if err != nil || ofStore != nil || !slices.Equal(x.Value().Data().([]bool), want) || !slices.Equal(testutil.Get[[]cudaops.Learnable](t)(s.Parameters())[0].Value.Data().([]bool), want) {
				t.Errorf("%s: got %v and the errors %v and %v, want %v", dtype, x.Value(), err, ofStore, want)
			}
			testutil.Do(t, s.Close())
		}
	}
}

// Tensors of drawn shapes are transposed.
func TestTransposed(t *testing.T) {
	random := testutil.Random(t)
	for range 20 {
		rows, cols := 1+random.IntN(100), 1+random.IntN(100)
		n := G.NewMatrix(G.NewGraph(), tensor.Float64, G.WithName("w"), G.WithShape(cols, rows))
		testutil.Get[Loaded](t)(LoadParameters(foreign(t, f32("w", rows, cols)), G.Nodes{n}, Transposed(always)))
		for k, x := range n.Value().Data().([]float64) {
			if r, c := k%rows, k/rows; x != float64(r*cols+c) {
				t.Fatalf("%d x %d: element %d, %d is %v, want %d", rows, cols, c, r, x, r*cols+c)
			}
		}
	}
}

func TestLoadOptionErrors(t *testing.T) {
	ints := safetensors.Tensor{Name: "n", Dtype: "I64", Shape: []int{1}}
	large := safetensors.Tensor{Name: "a", Dtype: "F64", Shape: []int{2}, Data: slices.Repeat([]byte{0, 0, 0, 0, 0, 0, 0, 0x7f}, 2)}
	nodes := func() (list G.Nodes) {
		g := G.NewGraph()
		return G.Nodes{G.NewVector(g, tensor.Float32, G.WithName("a"), G.WithShape(2)), G.NewVector(g, tensor.Float32, G.WithName("b"), G.WithShape(3))}
	}
	one := Rename(func(string) string { return "a" })
	for want, c := range map[string]struct {
		tensors []safetensors.Tensor
		opts    []LoadOption
	}{
		`without the tensors "b", want`:                             {[]safetensors.Tensor{f32("a", 2)}, nil},
		`with the tensors "c", want only`:                           {[]safetensors.Tensor{f32("a", 2), f32("b", 3), f32("c", 1)}, nil},
		`without the tensors "a", "b" and with "n", "x", want`:      {[]safetensors.Tensor{f32("x", 2), ints}, nil},
		`the tensors "a" and "b" for a, want one`:                   {[]safetensors.Tensor{f32("a", 2), f32("b", 3)}, []LoadOption{one}},
		`b: got shape (2), want float32 of shape (3)`:               {[]safetensors.Tensor{f32("a", 2), f32("b", 2)}, nil},
		`tensor "a": got the shape (2) for Transposed`:              {[]safetensors.Tensor{f32("a", 2), f32("b", 3)}, []LoadOption{Transposed(always)}},
		`tensor "a": got element 0 of F64, 00 00 00 00 00 00 00 7f`: {[]safetensors.Tensor{large, f32("b", 3)}, nil},
		`tensor "a": got elements of U16, which do not convert`:     {[]safetensors.Tensor{{Name: "a", Dtype: "U16", Shape: []int{2}}, f32("b", 3)}, nil},
		`tensor "a": got the shape [0]`:                             {[]safetensors.Tensor{f32("a", 0), f32("b", 3)}, nil},
		"got a nil option":                                          {[]safetensors.Tensor{f32("a", 2)}, []LoadOption{nil}},
	} {
		list := nodes()
		if l, err := LoadParameters(foreign(t, c.tensors...), list, c.opts...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %+v, %v, want the error %q", l, err, want)
		}
		if list[0].Value() != nil || list[1].Value() != nil {
			t.Errorf("%s: it set a node", want)
		}
	}
	many := make([]safetensors.Tensor, 14)
	for i := range many {
		many[i] = f32(fmt.Sprintf("t%02d", i), 1)
	}
	if _, err := LoadParameters(foreign(t, many...), nodes()); err == nil || !strings.Contains(err.Error(), `"t09" and 4 others`) {
		t.Errorf("14 tensors give the error %v", err)
	}
	if _, err := LoadStore(foreign(t, safetensors.Tensor{Name: "n", Dtype: "U16", Shape: []int{1}, Data: make([]byte, 2)}), cudaops.NewStore()); err == nil || !strings.Contains(err.Error(), `tensor "n": got elements of U16`) {
		t.Errorf("integers without a type for a Store give the error %v", err)
	}
	if _, err := LoadParameters(t.TempDir(), nodes()); err == nil || !strings.Contains(err.Error(), "want a folder with model.safetensors.index.json or") {
		t.Errorf("an empty folder gives the error %v", err)
	}
}

// A file of Save gives its moments under other names.
func TestRenameOfTraining(t *testing.T) {
	m := newModel(t, tensor.Float32, 1, 5)
	vm := m.machine(t, cudaops.OnHost(), G.NewMomentum(), cudaops.Seed(1))
	m.steps(t, vm, 0, 2)
	path := filepath.Join(t.TempDir(), "run")
	testutil.Do(t, Save(path, vm, nil))
	moments := func(name string) string {
		of, is := strings.CutPrefix(name, "moment1/")
		if !is {
			return ""
		}
		return of
	}
	s := cudaops.NewStore()
	if l := testutil.Get[Loaded](t)(LoadStore(path, s, Rename(moments))); l.Note != "" || l.Unused != nil {
		t.Errorf("got %+v", l)
	}
	_, want := state(t, vm)
	for name, b := range held(t, s) {
		for _, l := range m.learnables {
			if l.Name() == name && !bytes.Equal(b, want[fmt.Sprint(momentName(1, name), tensor.Float32, l.Shape())]) {
				t.Errorf("%s: got another value than the moment", name)
			}
		}
	}
	if n := len(held(t, s)); n != len(m.learnables) {
		t.Errorf("got %d parameters, want %d", n, len(m.learnables))
	}
}

package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"pgregory.net/rapid"
)

// file returns a file of a header and the bytes that follow it.
func file(header string, data int) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), make([]byte, data)...)
}

func open(b []byte) (*File, error) { return New(bytes.NewReader(b), int64(len(b))) }

// rewritten writes a file of tensors and opens it.
func rewritten(metadata map[string]string, tensors []Tensor) (*File, error) {
	var b bytes.Buffer
	if err := Write(&b, metadata, tensors); err != nil {
		return nil, err
	}
	return open(b.Bytes())
}

// differ returns an error unless a file has these tensors and no others.
func differ(f *File, tensors []Tensor) error {
	if len(f.Tensors) != len(tensors) {
		return fmt.Errorf("got %d tensors, want %d", len(f.Tensors), len(tensors))
	}
	for _, want := range tensors {
		got := f.Find(want.Name)
		if got == nil || got.Dtype != want.Dtype || !slices.Equal(got.Shape, want.Shape) {
			return fmt.Errorf("got %+v, want %s: %s of %v", got, want.Name, want.Dtype, want.Shape)
		}
		data := make([]byte, len(want.Data))
		if err := got.Read(data); err != nil || !bytes.Equal(data, want.Data) {
			return fmt.Errorf("%s: got % x, %v, want % x", want.Name, data, err, want.Data)
		}
	}
	return nil
}

// Tensors are read as they were written, and are aligned in the file.
func TestRoundTrip(t *testing.T) {
	dtypes := slices.Sorted(maps.Keys(dtypeBits))
	testutil.CheckProperty(t, func(t *rapid.T) {
		var tensors []Tensor
		for _, name := range rapid.SliceOfDistinct(rapid.StringN(1, 8, -1), rapid.ID[string]).Draw(t, "names") {
			x := Tensor{Name: name, Dtype: rapid.SampledFrom(dtypes).Draw(t, "dtype"), Shape: rapid.SliceOfN(rapid.IntRange(0, 4), 0, 3).Draw(t, "shape")}
			n, err := x.Bytes()
			if err != nil || name == metadataKey { // of a fraction of a byte
				continue
			}
			x.Data = rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "data")
			tensors = append(tensors, x)
		}
		metadata := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "metadata")
		f, err := rewritten(metadata, tensors)
		if err == nil {
			err = differ(f, tensors)
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(metadata) > 0 && !maps.Equal(f.Metadata, metadata) {
			t.Fatalf("got the metadata %q, want %q", f.Metadata, metadata)
		}
		for _, x := range f.Tensors {
			if at := uint64(8+len(f.Header)) + x.begin; at*8%dtypeBits[x.Dtype] != 0 && dtypeBits[x.Dtype]%8 == 0 {
				t.Fatalf("%s of %s begins at byte %d", x.Name, x.Dtype, at)
			}
		}
	})
}

func TestNewBadFiles(t *testing.T) {
	const a = `"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`
	whole := file("{"+a+"}", 8)
	testutil.Get[*File](t)(open(whole))
	for _, c := range []struct {
		want string
		b    []byte
	}{
		{"want a safetensors file", nil},
		{"want a safetensors file", whole[:7]},
		{"truncated, or not a safetensors file", whole[:20]},
		{`truncated: tensor "a": got 7 bytes of tensors, want its bytes 0 to 8`, whole[:len(whole)-1]},
		{"got 9 bytes of tensors, want the 8", append(slices.Clone(whole), 0)},
		{"want 100000000 at most", []byte("PK\x03\x04 an archive of another kind")},
		{"truncated, or not a safetensors file: got 8 bytes", binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 99_999_999), 0)},
		{"begin with {", file("", 0)},
		{"begin with {", file(` {}`, 0)},
		{"begin with {", file(`[]`, 0)},
		{"UTF-8", file("{\"\xff\":1}", 0)},
		{"unexpected EOF", file("{"+a, 8)},
		{`"{}" after its end`, file("{"+a+"}{}", 8)},
		{`got "a" twice`, file("{"+a+","+a+"}", 8)},
		{`got "dtype" twice`, file(`{"a":{"dtype":"F64","dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8)},
		{`got "Dtype"`, file(`{"a":{"Dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8)},
		{"want all of them", file(`{"a":{"dtype":"F32","data_offsets":[0,8]}}`, 8)},
		{"want all of them", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}}`, 8)},
		{"want all of them", file(`{"a":{}}`, 0)},
		{"want {", file(`{"a":null}`, 0)},
		{"want [", file(`{"a":{"dtype":"F32","shape":null,"data_offsets":[0,8]}}`, 8)},
		{"want a whole number", file(`{"a":{"dtype":"F32","shape":[null],"data_offsets":[0,8]}}`, 8)},
		{"want a whole number", file(`{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, 8)},
		{"want a whole number", file(`{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}`, 8)},
		{"want a whole number", file(`{"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}}`, 8)},
		{"want a string", file(`{"a":{"dtype":4,"shape":[2],"data_offsets":[0,8]}}`, 8)},
		{`__metadata__, "n": got 1, want a string`, file(`{"__metadata__":{"n":1},`+a+`}`, 8)},
		{"want {", file(`{"__metadata__":"n",`+a+`}`, 8)},
		{"unknown to the format", file(`{"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}}`, 8)},
		{"less than 2^63 bits", file(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}`, 8)},
		{"whole bytes", file(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}`, 2)},
		{"want 12 of them", file(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8)},
		{"from 0 on", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}`, 16)},
		{"from 0 on", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, 8)},
		{`"b": got bytes 4 to 12, want them from 8 on`, file("{"+a+`,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12)},
		{`"b": got bytes 9 to 17, want them from 8 on`, file("{"+a+`,"b":{"dtype":"F32","shape":[2],"data_offsets":[9,17]}}`, 17)},
		{`"b": got bytes 0 to 8, want them from 8 on`, file("{"+a+`,"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8)},
		{`truncated: tensor "a": got 8 bytes of tensors, want its bytes 0 to 576460752303423488`,
			file(`{"a":{"dtype":"F32","shape":[144115188075855872],"data_offsets":[0,576460752303423488]}}`, 8)},
	} {
		if f, err := open(c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.90q: got %v, %v, want an error with %q", c.b, f, err, c.want)
		}
	}
}

func TestWriteBadTensors(t *testing.T) {
	x := Tensor{Name: "a", Dtype: "F32", Shape: []int{2}, Data: make([]byte, 8)}
	change := func(f func(x *Tensor)) []Tensor {
		y := x
		f(&y)
		return []Tensor{y}
	}
	for want, tensors := range map[string][]Tensor{
		`the name "a"`:            {x, x},
		`the name ""`:             change(func(x *Tensor) { x.Name = "" }),
		`the name "__metadata__"`: change(func(x *Tensor) { x.Name = metadataKey }),
		"want UTF-8":              change(func(x *Tensor) { x.Name = "\xff" }),
		"unknown to the format":   change(func(x *Tensor) { x.Dtype = "float32" }),
		"got 8 bytes, want 12":    change(func(x *Tensor) { x.Shape = []int{3} }),
		"less than 2^63 bits":     change(func(x *Tensor) { x.Shape = []int{-1} }),
	} {
		var b bytes.Buffer
		if err := Write(&b, nil, tensors); err == nil || !strings.Contains(err.Error(), want) || b.Len() > 0 {
			t.Errorf("got the error %v and %d bytes, want an error with %q", err, b.Len(), want)
		}
	}
	if err := Write(&bytes.Buffer{}, map[string]string{"a": "\xff"}, nil); err == nil {
		t.Error("metadata that is not UTF-8 is no error")
	}
	f := testutil.Get[*File](t)(rewritten(nil, []Tensor{x}))
	if err := f.Find("a").Read(make([]byte, 4)); err == nil {
		t.Error("too little memory is no error")
	}
}

// Whatever the bytes are, New does not panic, and a file that it accepts is written again as it is.
func FuzzNew(f *testing.F) {
	f.Add(file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F64","shape":[],"data_offsets":[8,16]}}`, 16))
	f.Add(file(`{"__metadata__":{"k":"v"},"x":{"dtype":"U8","shape":[0,5],"data_offsets":[0,0]}}   `, 0))
	f.Add(file(`{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}`, 1))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := open(b)
		if err != nil {
			return
		}
		for i := range got.Tensors {
			x := &got.Tensors[i]
			x.Data = make([]byte, x.end-x.begin)
			testutil.Do(t, x.Read(x.Data))
			if x.Name == "" { // which the format allows, and Write does not
				return
			}
		}
		again := testutil.Get[*File](t)(rewritten(got.Metadata, got.Tensors))
		testutil.Do(t, differ(again, got.Tensors))
		if len(got.Metadata) > 0 && !reflect.DeepEqual(again.Metadata, got.Metadata) {
			t.Fatalf("got the metadata %q, want %q", again.Metadata, got.Metadata)
		}
	})
}

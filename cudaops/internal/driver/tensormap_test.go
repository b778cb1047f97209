//go:build linux && (amd64 || arm64)

package driver

import (
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// encoded holds the arguments that the driver is asked to encode.
type encoded struct {
	kind, rank, address                    uint64
	extents, strides                       []uint64
	box, steps                             []uint32
	interleave, swizzle, promote, fillKind uint64
}

// Encode hands the tensor to the driver as its header declares the function, with
// 64-byte aligned memory for the map.
func TestEncode(t *testing.T) {
	defer func(addr uintptr) { cuTensorMapEncodeTiled.addr = addr }(cuTensorMapEncodeTiled.addr)
	var got encoded
	var to unsafe.Pointer
	cuTensorMapEncodeTiled.addr = purego.NewCallback(func(m unsafe.Pointer, kind, rank, address uintptr, extents, strides *uint64, box, steps *uint32,
		interleave, swizzle, promote, fill uintptr) uintptr {
		to = m
		got = encoded{uint64(uint32(kind)), uint64(uint32(rank)), uint64(address), unsafe.Slice(extents, 3), unsafe.Slice(strides, 2), unsafe.Slice(box, 3), unsafe.Slice(steps, 3),
			uint64(uint32(interleave)), uint64(uint32(swizzle)), uint64(uint32(promote)), uint64(uint32(fill))}
		*(*[16]uint64)(m) = [16]uint64{0: 1, 15: 16}
		return 0
	})
	defer func(addr uintptr) { cuCtxSetCurrent.addr = addr }(cuCtxSetCurrent.addr)
	current := uintptr(0)
	cuCtxSetCurrent.addr = purego.NewCallback(func(handle uintptr) uintptr { current = handle; return 0 })
	c := &Context{handle: 0x77}
	tensor := Tensor{Address: 0x7000, Type: BFloat16, Extents: []int64{70, 100, 3}, Strides: []int64{144, 14400}, Box: []int64{64, 32, 1}, Swizzle: 128}
	m, err := c.Encode(tensor)
	if err != nil {
		t.Fatal(err)
	}
	if current != 0x77 {
		t.Errorf("context %#x is current, want that of the tensor, 0x77", current)
	}
	want := encoded{9, 3, 0x7000, []uint64{70, 100, 3}, []uint64{144, 14400}, []uint32{64, 32, 1}, []uint32{1, 1, 1}, 0, 3, 2, 0}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the driver got %+v, want %+v", got, want)
	}
	if m != to || uintptr(m)%64 != 0 {
		t.Errorf("the map is at %p, the driver wrote to %p; want the same, a multiple of 64", m, to)
	}
	if v := *(*[16]uint64)(m); v[0] != 1 || v[15] != 16 {
		t.Errorf("the map is %v, want the one that the driver wrote", v)
	}
	for bytes, code := range map[int64]uint64{0: 0, 32: 1, 64: 2} {
		tensor.Swizzle = bytes
		if _, err := c.Encode(tensor); err != nil || got.swizzle != code {
			t.Errorf("a swizzle of %d bytes has code %d, %v, want %d", bytes, got.swizzle, err, code)
		}
	}
}

// Encode hands windows to the driver as its header declares the function.
func TestEncodeWindows(t *testing.T) {
	defer func(addr uintptr) { cuTensorMapEncodeIm2col.addr = addr }(cuTensorMapEncodeIm2col.addr)
	type encoded struct {
		kind, rank, address, channels, pixels, swizzle, promote uint64
		extents, strides                                        []uint64
		lower, upper                                            []int32
		steps                                                   []uint32
	}
	var got encoded
	cuTensorMapEncodeIm2col.addr = purego.NewCallback(func(m unsafe.Pointer, kind, rank, address uintptr, extents, strides *uint64, lower, upper *int32, channels, pixels uintptr, steps *uint32,
		interleave, swizzle, promote, fill uintptr) uintptr {
		got = encoded{uint64(uint32(kind)), uint64(uint32(rank)), uint64(address), uint64(uint32(channels)), uint64(uint32(pixels)), uint64(uint32(swizzle)), uint64(uint32(promote)),
			unsafe.Slice(extents, 4), unsafe.Slice(strides, 3), unsafe.Slice(lower, 2), unsafe.Slice(upper, 2), unsafe.Slice(steps, 4)}
		return 0
	})
	defer func(addr uintptr) { cuCtxSetCurrent.addr = addr }(cuCtxSetCurrent.addr)
	cuCtxSetCurrent.addr = purego.NewCallback(func(uintptr) uintptr { return 0 })
	_, err := new(Context).Encode(Tensor{Address: 0x7000, Type: BFloat16, Extents: []int64{70, 20, 30, 3}, Strides: []int64{144, 2880, 86400}, Box: []int64{64, 32}, Swizzle: 128,
		Lower: []int64{-1, -2}, Upper: []int64{-3, 4}, Steps: []int64{2, 3}})
	want := encoded{9, 4, 0x7000, 64, 32, 3, 2, []uint64{70, 20, 30, 3}, []uint64{144, 2880, 86400}, []int32{-1, -2}, []int32{-3, 4}, []uint32{1, 2, 3, 1}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the driver got %+v, %v, want %+v", got, err, want)
	}
}

// The error about a tensor that the driver refuses names the function.
func TestEncodeError(t *testing.T) {
	defer func(addr uintptr) { cuTensorMapEncodeTiled.addr = addr }(cuTensorMapEncodeTiled.addr)
	cuTensorMapEncodeTiled.addr = 0
	defer func(addr uintptr) { cuCtxSetCurrent.addr = addr }(cuCtxSetCurrent.addr)
	cuCtxSetCurrent.addr = purego.NewCallback(func(uintptr) uintptr { return 0 })
	tensor := Tensor{Type: Float32, Extents: []int64{4}, Box: []int64{4}}
	if _, err := new(Context).Encode(tensor); err == nil || !strings.Contains(err.Error(), "cuTensorMapEncodeTiled") {
		t.Errorf("got error %v, want one that names cuTensorMapEncodeTiled", err)
	}
}

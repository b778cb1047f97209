package driver

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// ErrNoDevice is wrapped by every error about a machine without a usable CUDA device: no
// driver, a driver that does not start, or a driver without a device.
var ErrNoDevice = errors.New("no CUDA device")

// ErrClosed is wrapped by every error of a call on a closed context.
var ErrClosed = errors.New("CUDA context is closed")

// Error is a CUDA call that failed.
type Error struct {
	Call string // the function: "cuMemAlloc_v2"
	Code int    // the CUresult
	Name string // its name: "CUDA_ERROR_OUT_OF_MEMORY"; "" if the driver knows none
	Text string // the driver's description of it, or the caller's more specific one
}

func (e *Error) Error() string {
	switch {
	case e.Name == "":
		return fmt.Sprintf("%s: CUDA error %d", e.Call, e.Code)
	case e.Text == "":
		return fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code)
	}
	return fmt.Sprintf("%s: %s (%s, %d)", e.Call, e.Text, e.Name, e.Code)
}

// IsOutOfMemory reports whether err is CUDA's error that device memory is full.
func IsOutOfMemory(err error) bool {
	const outOfMemory = 2
	var e *Error
	return errors.As(err, &e) && e.Code == outOfMemory
}

// Join is errors.Join without repetitions: after a kernel has failed, every call on the context, such as those that free
// memory, returns the same error.
func Join(errs ...error) error {
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil
	}
	said := map[int]bool{}
	var list []error
	for _, err := range flatten(errs) {
		codes := codesOf(err, nil)
		if len(codes) > 0 && !slices.ContainsFunc(codes, func(code int) bool { return !said[code] }) {
			continue
		}
		for _, code := range codes {
			said[code] = true
		}
		list = append(list, err)
	}
	return errors.Join(list...)
}

// flatten replaces each error made by errors.Join by the errors that it joins.
func flatten(errs []error) (list []error) {
	for _, err := range errs {
		joined, ok := err.(interface{ Unwrap() []error })
		if ok && err.Error() == errors.Join(joined.Unwrap()...).Error() {
			list = append(list, flatten(joined.Unwrap())...)
		} else if err != nil {
			list = append(list, err)
		}
	}
	return list
}

// codesOf appends the codes of the calls that failed in the tree of an error.
func codesOf(err error, codes []int) []int {
	switch e := err.(type) {
	case *Error:
		codes = append(codes, e.Code)
	case interface{ Unwrap() error }:
		codes = codesOf(e.Unwrap(), codes)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			codes = codesOf(err, codes)
		}
	}
	return codes
}

func newError(call string, code int) *Error {
	return &Error{call, code, describe(cuGetErrorName, code), describe(cuGetErrorString, code)}
}

func describe(p *proc, code int) string {
	var text *byte // a constant of the library, in C memory
	if p.addr == 0 || invoke(p.addr, uintptr(code), uintptr(unsafe.Pointer(&text))) != 0 || text == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(text), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(text, n))
}

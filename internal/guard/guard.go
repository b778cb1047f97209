// Package guard calls code of other modules, such as the Do of a user's op: its panics become
// errors, and nil pointers that it returns are recognised.
package guard

import (
	"fmt"
	"reflect"
)

// Recover calls f and returns its error. A panic of f becomes an error that begins with what, the name
// of the code that is called.
func Recover(what string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s panicked: %v", what, r)
		}
	}()
	return f()
}

// IsNil reports whether x is nil, or an interface that holds a nil pointer, map, slice,
// function or channel.
func IsNil(x any) bool {
	if x == nil {
		return true
	}
	switch v := reflect.ValueOf(x); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return v.IsNil()
	}
	return false
}

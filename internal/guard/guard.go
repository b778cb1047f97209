// Package guard calls code that may panic, of other modules, such as the Do of a user's op, or the compiler of graphs: panics become
// errors, and nil pointers that code of other modules returns are recognised.
package guard

import (
	"fmt"
	"path"
	"reflect"
	"runtime"
	"strings"
)

// Recover calls f and returns its error. A panic of f becomes an error that begins with what, the name
// of the code that is called. If the line that panicked is one of Stheno, the error says so as that of [Own] does.
func Recover(what string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked(what, r, false)
		}
	}()
	return f()
}

// Own is Recover for code of Stheno. If the line that panicked is not in another module, Gorgonia's excepted, the error calls the panic a fault of Stheno and says what to report.
func Own(what string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked(what, r, true)
		}
	}()
	return f()
}

// panicked returns the error for a recovered panic. It is called by the deferred function.
func panicked(what string, r any, gorgonia bool) error {
	err := fmt.Errorf("%s panicked: %v", what, r)
	lines, own := stack(gorgonia)
	if own {
		err = fmt.Errorf("%w, at %s. This is a fault of Stheno: please report this message, with the program that makes the graph, at https://github.com/stheno-ml/stheno/issues", err, lines)
	}
	return err
}

// stack returns the lines of the code that panicked and of its callers, innermost first, up to the call of this package. It also reports whether the
// innermost line outside of the standard library is one of Stheno, or, if that counts, of Gorgonia. kernels.Parallel does not count: it panics again with panics of its callers' code.
func stack(gorgonia bool) (lines string, own bool) {
	const module, most = "github.com/stheno-ml/stheno/", 8
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)]) // from the function that panicked on, after functions of package runtime
	var list []string
	decided := false
	for more := true; more && len(list) < most; {
		var at runtime.Frame
		at, more = frames.Next()
		if strings.HasPrefix(at.Function, module+"internal/guard.") {
			break
		}
		if len(list) == 0 && strings.HasPrefix(at.Function, "runtime.") {
			continue
		}
		first, _, _ := strings.Cut(at.Function, "/")
		if again := strings.HasPrefix(at.Function, module+"kernels.Parallel"); !decided && !again && (first == "main" || strings.Contains(first, ".") && first != at.Function) {
			decided, own = true, strings.HasPrefix(at.Function, module) && !strings.HasSuffix(at.File, "_test.go") || gorgonia && first == "gorgonia.org"
		}
		list = append(list, fmt.Sprintf("%s:%d", path.Join(path.Base(path.Dir(at.File)), path.Base(at.File)), at.Line))
	}
	return strings.Join(list, ", "), own
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

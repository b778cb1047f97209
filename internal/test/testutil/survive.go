package testutil

import (
	"fmt"
	"go/ast"
	"path"
	"reflect"
	"runtime/debug"
	"strings"
	"testing"
)

// Survive calls the functions of the package in the working folder, by name, and all methods of the values that are of its
// types, of zero values and of nil pointers, with each combination of arguments: the values of a parameter's
// type, its zero value and nil. It is an error if a call panics. A nil in place of a function, also of
// "Type.Method", leaves it out. Methods that return no error are not called on nil pointers.
func Survive(t testing.TB, functions map[string]any, values ...any) {
	t.Helper()
	survive(t, functions, values)
}

// SurviveWhole is [Survive]. It is also an error if functions and values lack an exported function or
// type of the package.
func SurviveWhole(t testing.TB, functions map[string]any, values ...any) {
	t.Helper()
	types := survive(t, functions, values)
	for _, name := range exported(parsed(t, ".")) {
		if _, named := functions[name]; !named && !types[name] {
			t.Errorf("%s is exported, want it among the functions or a value of it", name)
		}
	}
}

// survive returns the names of the package's types that have values.
func survive(t testing.TB, functions map[string]any, values []any) (types map[string]bool) {
	t.Helper()
	s := &survival{TB: t, panics: map[string]int{}}
	for _, v := range values {
		s.add(reflect.ValueOf(v))
	}
	for name, f := range functions {
		if f != nil {
			s.call(name, reflect.ValueOf(f))
		}
	}
	inPackage := parsed(t, ".")[0].Name.Name
	types = map[string]bool{}
	for _, v := range s.values {
		of, base := v.Type(), v.Type()
		if of.Kind() == reflect.Pointer {
			base = of.Elem()
		}
		if path.Base(base.PkgPath()) != inPackage {
			continue
		}
		types[base.Name()] = true
		for i := range of.NumMethod() {
			name, f := base.Name()+"."+of.Method(i).Name, v.Method(i)
			if except, has := functions[name]; has && except == nil || of.Kind() == reflect.Pointer && v.IsNil() && !fails(f.Type()) {
				continue
			}
			s.call(fmt.Sprintf("(%v).%s", of, of.Method(i).Name), f)
		}
	}
	return types
}

// fails reports whether a function can return an error, at once or by a function that it returns.
func fails(f reflect.Type) bool {
	for i := range f.NumOut() {
		if out := f.Out(i); out == reflect.TypeFor[error]() || out.Kind() == reflect.Func {
			return true
		}
	}
	return false
}

// survival is a call of Survive.
type survival struct {
	testing.TB
	values []reflect.Value
	panics map[string]int // of functions
}

// add adds a value, the zero value of its type and, for a pointer, one to a zero value.
func (s *survival) add(v reflect.Value) {
	of := v.Type()
	s.values = append(s.values, v, reflect.Zero(of))
	if of.Kind() == reflect.Pointer {
		s.values = append(s.values, reflect.New(of.Elem()))
	}
}

// call calls a function with all arguments.
func (s *survival) call(name string, f reflect.Value) {
	of := f.Type()
	args := make([]reflect.Value, of.NumIn())
	var choose func(i int)
	choose = func(i int) {
		if i == len(args) {
			s.try(name, f, args)
			return
		}
		in := of.In(i)
		for _, v := range s.of(in) {
			args[i] = v
			choose(i + 1)
		}
	}
	choose(0)
}

var anything = reflect.TypeFor[any]()

// of returns the values for a parameter.
func (s *survival) of(in reflect.Type) (list []reflect.Value) {
	list = append(list, reflect.Zero(in))
	for _, v := range s.values {
		if v.Type().AssignableTo(in) && (in != anything || v.Kind() != reflect.Pointer || v.IsNil()) { // who takes anything may keep it
			list = append(list, v)
		}
	}
	switch in.Kind() {
	case reflect.Func:
		list = append(list, nothing(in))
	case reflect.Slice:
		for _, v := range s.of(in.Elem()) {
			list = append(list, reflect.Append(reflect.Zero(in), v))
		}
	}
	return list
}

// nothing is a function that returns zero values.
func nothing(of reflect.Type) reflect.Value {
	return reflect.MakeFunc(of, func([]reflect.Value) (out []reflect.Value) {
		for i := range of.NumOut() {
			out = append(out, reflect.Zero(of.Out(i)))
		}
		return out
	})
}

// try calls a function with arguments, and iterators that it returns.
func (s *survival) try(name string, f reflect.Value, args []reflect.Value) {
	defer func() {
		if r := recover(); r != nil {
			if s.panics[name]++; s.panics[name] > 1 {
				return // one tells enough
			}
			var list []string
			for _, a := range args {
				list = append(list, fmt.Sprintf("%#v", a))
			}
			s.Errorf("%s(%.300s) panics: %v\n%s", name, strings.Join(list, ", "), r, debug.Stack())
		}
	}()
	var out []reflect.Value
	if f.Type().IsVariadic() {
		out = f.CallSlice(args)
	} else {
		out = f.Call(args)
	}
	for _, o := range out {
		if of := o.Type(); of.Kind() == reflect.Func && !o.IsNil() && of.NumIn() == 1 && of.In(0).Kind() == reflect.Func {
			s.try(name+", iterated over", o, []reflect.Value{nothing(of.In(0))})
		}
	}
}

// exported returns the names of the exported functions and types of a package, without interfaces, aliases
// and generic ones.
func exported(files []*ast.File) (names []string) {
	for _, file := range files {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.IsExported() && d.Type.TypeParams == nil {
					names = append(names, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					of, ok := spec.(*ast.TypeSpec)
					if !ok || !of.Name.IsExported() || of.TypeParams != nil || of.Assign.IsValid() {
						continue
					}
					if _, ok := of.Type.(*ast.InterfaceType); !ok {
						names = append(names, of.Name.Name)
					}
				}
			}
		}
	}
	return names
}

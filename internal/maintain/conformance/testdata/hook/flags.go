//go:build go1.26

// Package flags replaces package flag when several programs are combined into one binary:
// each program keeps a separate set of flags.
package flags

import (
	"flag"
	"os"
	"runtime"
	"strings"
)

var sets = map[string]*flag.FlagSet{}

// of returns the flags of the package whose function calls ours.
func of() *flag.FlagSet {
	pc, _, _, _ := runtime.Caller(2)
	name := runtime.FuncForPC(pc).Name()
	folder := strings.LastIndex(name, "/") + 1
	pkg, _, _ := strings.Cut(name[folder:], ".")
	if sets[pkg] == nil {
		sets[pkg] = flag.NewFlagSet(pkg, flag.ExitOnError)
	}
	return sets[pkg]
}

// String is flag.String.
func String(name, value, usage string) *string { return of().String(name, value, usage) }

// Int is flag.Int.
func Int(name string, value int, usage string) *int { return of().Int(name, value, usage) }

// Bool is flag.Bool.
func Bool(name string, value bool, usage string) *bool { return of().Bool(name, value, usage) }

// Parse is flag.Parse.
func Parse() { of().Parse(os.Args[1:]) }

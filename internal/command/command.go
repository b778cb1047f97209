// Package command ends programs: with status 2 after a mistake in the command line, with status 1
// after any other error.
package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// Exit statuses.
const (
	Failure = 1 // something went wrong
	Misuse  = 2 // the command line is wrong
)

// misuse is a mistake in the command line.
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

// Misused returns an error about the command line, formatted as by fmt.Errorf.
func Misused(format string, a ...any) error { return misuse{fmt.Errorf(format, a...)} }

// NoArguments returns an error if arguments follow the flags of the program.
func NoArguments() error {
	if flag.NArg() > 0 {
		return Misused("got arguments %q, want flags alone", flag.Args())
	}
	return nil
}

// Flags parses the command line of a program that takes flags alone. Help names the program, not the
// file that go run made of it; a mistake ends the program.
func Flags(program string) {
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "Usage of %s:\n", program)
		flag.PrintDefaults()
	}
	flag.Parse()
	Exit(program, NoArguments())
}

// Status prints an error, if there is one, after the name of the program, and returns the exit
// status.
func Status(w io.Writer, program string, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(w, "%s: %v\n", program, err)
	if wrong := (misuse{}); errors.As(err, &wrong) {
		return Misuse
	}
	return Failure
}

// Exit ends the program if there is an error, which it prints to standard error.
func Exit(program string, err error) {
	if status := Status(os.Stderr, program, err); status != 0 {
		os.Exit(status)
	}
}

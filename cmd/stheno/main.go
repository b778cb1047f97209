// Command stheno looks at the machine and measures the kernels on it.
//
//	stheno doctor   what is there, and what is missing, in plain words
//	stheno bench    times the ops: on a GPU, or against Gorgonia's own on the CPU
//	stheno evidence compares what has run on GPUs with the kernels of this build
//	stheno env      prints cgo's settings for a build with Gorgonia's tag cuda
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

const usage = `usage: stheno <command> [flags]

  doctor   says what this machine has for Stheno, and what is missing
  bench    times every op, or whole graphs, on a GPU (stheno bench -h lists the flags)
  evidence compares what has run on GPUs with these kernels (stheno evidence -h)
  env      prints cgo's settings for a build with the tag cuda (stheno env -h)
`

func main() {
	switch err := run(os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "stheno:", err)
		os.Exit(1)
	}
}

// errUsage says that the command line is wrong and that this has been told.
var errUsage = errors.New("wrong usage")

func run(args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return errUsage
	}
	switch args[0] {
	case "doctor":
		return doctorCommand(args[1:], stdout, stderr)
	case "bench":
		return benchCommand(args[1:], stdout, stderr)
	case "evidence":
		return evidenceCommand(args[1:], stdout, stderr)
	case "env":
		return envCommand(args[1:], stdout, stderr)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return nil
	}
	fmt.Fprintf(stderr, "stheno: no command %q\n\n%s", args[0], usage)
	return errUsage
}

// parse parses flags; what is wrong has been printed when it gives errUsage.
func parse(f *flag.FlagSet, args []string, stderr io.Writer) error {
	f.SetOutput(stderr)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if f.NArg() > 0 {
		fmt.Fprintf(stderr, "stheno %s: takes no arguments beside flags, got %q\n", f.Name(), f.Args())
		return errUsage
	}
	return nil
}

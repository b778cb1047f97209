// Command stheno examines the machine, measures the ops on it, and shows what the compiler makes of
// a graph and when its steps run. "stheno -h" lists its commands, "stheno bench gpu -h" the flags
// of one.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"unicode"

	"github.com/alecthomas/kong"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// Exit statuses.
const (
	failure = 1 // something went wrong
	misuse  = 2 // the command line is wrong
)

// commands are all commands with their flags.
type commands struct {
	Help    helpFlag    `short:"h" help:"Explain a command and its flags."`
	Version versionFlag `help:"Print the version."`

	Doctor    doctor      `cmd:"" help:"Report what Stheno finds on this machine, and what is missing."`
	Calibrate calibrate   `cmd:"" help:"Measure a GPU for the predictions that choose kernels, and keep that for this user."`
	Bench     benches     `cmd:"" help:"Time the ops, whole graphs or training steps, on a GPU or on this machine's processor."`
	Record    record      `cmd:"" help:"Check and time every op on a GPU, for a file of results that can be sent."`
	Explain   explain     `cmd:"" help:"Show what the compiler makes of a graph, pass by pass."`
	Trace     trace       `cmd:"" help:"Run a graph and write when each of its steps ran, for a trace viewer."`
	Launch    launch      `cmd:"" help:"Start the processes of a program with several ranks on this machine."`
	Env       env         `cmd:"" help:"Print cgo's settings for a build with Gorgonia's tag cuda."`
	Maintain  maintainers `cmd:"" help:"Keep the records of Stheno's repository: the runs on GPUs, and the tables made of them."`
}

const description = `Stheno runs Gorgonia's graphs on an NVIDIA GPU, or on the processor with the same results.`

// console holds the outputs of a command.
type console struct{ out, err io.Writer }

// output is standard output. It records the first error of a write, so that a command need not
// check each one.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// run runs a command line and returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	parser, err := kong.New(&commands{}, kong.Name("stheno"), kong.Description(description), kong.NoDefaultHelp(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 100}), kong.Writers(stdout, stderr))
	if err != nil {
		fmt.Fprintln(stderr, "stheno:", err)
		return failure
	}
	line, err := parser.Parse(twoDashes(args))
	called, shown := "stheno", (*shownError)(nil)
	switch {
	case errors.As(err, &shown):
		err = shown.error
	case err != nil:
		return refuse(err, stderr)
	default:
		called = name(line)
		out := &output{Writer: stdout}
		if err = line.Run(&console{out, stderr}); err == nil {
			err = out.err
		}
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "%s: %v\n", called, err)
	if misused := (*usageError)(nil); errors.As(err, &misused) {
		return misuse
	}
	return failure
}

// twoDashes rewrites flags with one dash, as in Go's own commands, with two, up to an argument --. -h alone is a flag of
// one letter.
func twoDashes(args []string) []string {
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if len(arg) > 2 && arg[0] == '-' && unicode.IsLetter(rune(arg[1])) {
			args[i] = "-" + arg
		}
	}
	return args
}

// refuse prints the fault of a command line and how to get help, and returns the exit status.
// For a group of commands it lists them.
func refuse(err error, stderr io.Writer) int {
	var wrong *kong.ParseError
	if !errors.As(err, &wrong) {
		fmt.Fprintln(stderr, "stheno:", err)
		return misuse
	}
	line := wrong.Context
	if node := line.Selected(); node == nil || !node.Leaf() {
		line.Stdout = stderr
		if err := line.PrintUsage(false); err == nil {
			fmt.Fprintln(stderr)
		}
	}
	fmt.Fprintf(stderr, "%s: %v\nRun \"%[1]s -h\" for help.\n", name(line), err)
	return misuse
}

// name returns a command as the user calls it: "stheno bench gpu".
func name(line *kong.Context) string {
	words := []string{"stheno"}
	for _, p := range line.Path {
		if p.Command != nil {
			words = append(words, p.Command.Name)
		}
	}
	return strings.Join(words, " ")
}

// usageError is a mistake in the command line that is found only when the command runs.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usageErrorf(format string, a ...any) error { return &usageError{fmt.Errorf(format, a...)} }

// shownError ends the parsing of a command line after a flag that prints text. It holds the error of
// the write, nil if the text was written.
type shownError struct{ error }

func (e *shownError) Error() string { return fmt.Sprint(e.error) }

// helpFlag prints the help of the command before it.
type helpFlag bool

// BeforeReset runs as soon as the flag is seen, whatever the command line lacks.
func (helpFlag) BeforeReset(line *kong.Context) error {
	return &shownError{line.PrintUsage(false)}
}

// IgnoreDefault keeps the flag's default, false, out of the help.
func (helpFlag) IgnoreDefault() {}

// versionFlag prints the version of the module.
type versionFlag bool

func (versionFlag) BeforeReset(line *kong.Context) error {
	version := "of unknown version"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	_, err := fmt.Fprintln(line.Stdout, "stheno", version)
	return &shownError{err}
}

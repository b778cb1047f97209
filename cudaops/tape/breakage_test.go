//go:build cuda

package tape_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/tape"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Each known breakage of Gorgonia's CUDA machine is a program of its own, so
// that a hang or a crash is an outcome like any other: the test starts itself
// again with the program's name in STHENO_PROGRAM.
func TestMain(m *testing.M) {
	if name := os.Getenv("STHENO_PROGRAM"); name != "" {
		for _, p := range programs {
			if p.graph+" on "+p.machine == name {
				if err := p.run(); err != nil {
					fmt.Println("ERROR:", err)
					os.Exit(3)
				}
				fmt.Println("RIGHT")
				os.Exit(0)
			}
		}
		fmt.Println("no program", name)
		os.Exit(4)
	}
	os.Exit(m.Run())
}

// Names of machines in the programs.
const (
	ours     = "tape.NewMachine"
	plain    = "gorgonia.NewTapeMachine"
	locked   = "gorgonia.NewTapeMachine, thread locked"
	oursLisp = "tape.NewLispMachine"
	lispGPU  = "gorgonia.NewLispMachine, thread locked"
)

// programs must be right, but for those that are Gorgonia's own machines in a
// case that is known to go wrong: there the outcome is only logged.
var programs = []struct {
	graph, machine string
	known          bool
	run            func() error
}{
	{"ops.Add", ours, false, on(add, stheno)},
	{"ops.Add", locked, false, held(on(add, gorgonias))},
	{"ops.Add", plain, true, on(add, gorgonias)},
	{"ops of Stheno, gradients", ours, false, on(sthenoOnly, stheno)},
	{"ops of Stheno, gradients", locked, false, held(on(sthenoOnly, gorgonias))},
	{"ops of Stheno, bound gradients", ours, false, bound(sthenoOnly, stheno)},
	{"ops of Stheno, bound gradients", locked, true, held(bound(sthenoOnly, gorgonias))},
	{"ops of Stheno and Tanh, gradients", ours, false, on(sthenoLoss, stheno)},
	{"ops of Stheno and Tanh, bound gradients", ours, false, bound(sthenoLoss, stheno)},
	{"mixed graph, gradients", ours, false, on(mixed, stheno)},
	{"mixed graph, gradients", locked, true, held(on(mixed, gorgonias))},
	{"mixed graph, bound gradients", ours, false, bound(mixed, stheno)},
	{"every function of one operand", ours, false, on(unary(tensor.Float64), stheno)},
	{"every function of one operand, float32", ours, false, on(unary(tensor.Float32), stheno)},
	{"every function of two operands", ours, false, on(binary(tensor.Float64), stheno)},
	{"every function of two operands, float32", ours, false, on(binary(tensor.Float32), stheno)},
	{"product of two integers", ours, false, on(integers, stheno)},
	{"product of two integers", locked, true, held(on(integers, gorgonias))},
	{"comparison of tensors, to Bool", ours, false, on(lessTensors, stheno)},
	{"comparison of tensors, to Bool", locked, true, held(on(lessTensors, gorgonias))},
	{"comparison of scalars, to Bool", ours, false, on(lessScalars, stheno)},
	{"comparison of scalars, to Bool", locked, true, held(on(lessScalars, gorgonias))},
	{"Add, no kernels registered", locked, true, held(on(gAdd, bare))},
	{"Tanh, no kernels registered", locked, true, held(on(gTanh, bare))},
	{"Tanh, while another goroutine works", ours, false, crowded(on(gTanh, stheno))},
	{"Tanh, while another goroutine works", plain, true, crowded(on(gTanh, gorgonias))},
	{"Tanh, made on one thread and run on another", ours, false, held(on(gTanh, elsewhere(stheno)))},
	{"Tanh, made on one thread and run on another", plain, true, held(on(gTanh, elsewhere(gorgonias)))},
	{"Sum of Tanh", ours, false, on(gSum, stheno)},
	{"Sum of Tanh", locked, true, held(on(gSum, gorgonias))},
	{"Sum over an axis of Tanh", ours, false, on(gSumAxis, stheno)},
	{"Sum alone", ours, false, on(gSumOnly, stheno)},
	{"Sum alone", locked, true, held(on(gSumOnly, gorgonias))},
	{"Mul of matrices", ours, false, on(gMul, stheno)},
	{"Mul of matrices", locked, true, held(on(gMul, gorgonias))},
	{"Mul of matrix and vector, gradients", ours, false, on(gMatVec, stheno)},
	{"Mul of matrix and vector, gradients", locked, true, held(on(gMatVec, gorgonias))},
	{"OuterProd", ours, false, on(gOuter, stheno)},
	{"OuterProd", locked, true, held(on(gOuter, gorgonias))},
	{"BatchedMatMul, gradients, 20 runs", ours, false, on(gBatched, repeated(20, stheno))},
	{"BatchedMatMul, gradients, 20 runs", locked, true, held(on(gBatched, repeated(20, gorgonias)))},
	{"Mul of vectors", ours, false, on(gMulVectors, stheno)},
	{"Mul of vectors", locked, true, held(on(gMulVectors, gorgonias))},
	{"Sum of Tanh of Mul, gradients", ours, false, on(gorgoniaLoss, stheno)},
	{"Sum of Tanh of Mul, gradients", locked, true, held(on(gorgoniaLoss, gorgonias))},
	{"Sum of Tanh of Mul, bound gradients", ours, false, bound(gorgoniaLoss, stheno)},
	{"Sum of Tanh of Mul, bound gradients", locked, true, held(bound(gorgoniaLoss, gorgonias))},
	{"inputs transposed, sliced and column-major", ours, false, on(strided, stheno)},
	{"inputs transposed, sliced and column-major", locked, true, held(on(strided, gorgonias))},
	{"WithNaNWatch, logarithms of negative numbers", ours, false, watches(stheno, "NaN", G.Log, G.WithNaNWatch())},
	{"WithNaNWatch, logarithms of negative numbers", locked, true, held(watches(gorgonias, "NaN", G.Log, G.WithNaNWatch()))},
	{"WithInfWatch, ops.Add of infinity", ours, false, watches(stheno, "Inf", infinity, G.WithInfWatch())},
	{"WithInfWatch, ops.Add of infinity", locked, true, held(watches(gorgonias, "Inf", infinity, G.WithInfWatch()))},
	{"100 times Add", ours, false, on(many, stheno)},
	{"100 times Add", locked, true, held(on(many, gorgonias))},
	{"10 machines one after the other, ops of Stheno", ours, false, loop(10, on(sthenoOnly, stheno))},
	{"10 machines one after the other, ops of Stheno", locked, false, held(loop(10, on(sthenoOnly, gorgonias)))},
	{"10 machines one after the other, ops of Stheno", plain, true, loop(10, on(sthenoOnly, gorgonias))},
	{"10 machines one after the other, Tanh", ours, false, loop(10, on(gTanh, stheno))},
	{"10 machines one after the other, Tanh", locked, true, held(loop(10, on(gTanh, gorgonias)))},
	{"4 machines at a time", ours, false, several(stheno)},
	{"4 machines at a time", locked, false, held(several(gorgonias))},
	{"4 machines at a time", plain, true, several(gorgonias)},
	{"4 machines in 4 goroutines", ours, false, together(stheno)},
	{"4 machines in 4 goroutines", locked, true, together(lockedGorgonias)},
	{"4 machines in 4 goroutines", plain, true, together(gorgonias)},
	{"values outlive the machine", ours, false, outlives},
	{"120 scalars", ours, false, on(scalars, stheno)},
	{"120 scalars", locked, true, held(on(scalars, gorgonias))},
	{"2^40 elements", ours, false, tooLarge(stheno)},
	{"2^40 elements", locked, true, held(tooLarge(gorgonias))},
	{"memory that launches take, ops.Add", ours, false, leak(ops.Add, stheno, 256)},
	{"memory that launches take, Gorgonia's Add", ours, false, leak(G.Add, stheno, 256)},
	{"memory that launches take, Gorgonia's Add", locked, true, held(leak(G.Add, gorgonias, math.MaxInt))},
	{"mixed graph, gradients", oursLisp, false, lispGradients(mixed, tape.NewLispMachine)},
	{"ops of Stheno, forward", lispGPU, true, held(on(sthenoLoss0, lisp(G.ExecuteFwdOnly())))},
	{"ops of Stheno, gradients", lispGPU, true, lispGradients(sthenoLoss0, lisp())},
	{"ops.Sum, gradient", lispGPU, true, lispGradients(sumOnly, lisp())},
}

// TestPrograms runs the programs. docs/cuda-tag.md has the outcomes of its last run on a GPU.
func TestPrograms(t *testing.T) {
	testutil.SkipUnless(t, "GPU", tape.Available())
	for _, p := range programs {
		t.Run(p.graph+" on "+p.machine, func(t *testing.T) {
			t.Parallel()
			text, err := start(t.Context(), p.graph+" on "+p.machine)
			switch {
			case err == nil || p.known:
				t.Logf("%s (%v)\n%s", outcome(text, err), err, text)
			default:
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

// TestNoDevice: with the tag and no device Gorgonia's machine panics on a graph
// with an op of its own for CUDA; tape.NewMachine returns an error that names what
// to do. Graphs of Stheno's ops alone run on the host with both.
func TestNoDevice(t *testing.T) {
	if tape.Available() == nil {
		t.Skip("there is a device")
	}
	panics := func() (p any) {
		defer func() { p = recover() }()
		G.NewTapeMachine(gTanh().g).Close()
		return nil
	}
	if p := panics(); p == nil {
		t.Error("Gorgonia's machine does not panic any more: docs/cuda-tag.md says so")
	}
	if _, err := tape.NewMachine(gTanh().g); !errors.Is(err, cudaops.ErrNoDevice) || !strings.Contains(err.Error(), "stheno.NewVM") {
		t.Errorf("tape.NewMachine: %v, want ErrNoDevice and what to do", err)
	}
	for name, make := range map[string]newMachine{ours: tape.NewMachine, plain: gorgonias} {
		m := add()
		vm := ok(make(m.g))
		if err := vm.RunAll(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		x, y, sum := numbers(m.leaves[0].Value()), numbers(m.leaves[1].Value()), numbers(m.out[0].Value())
		if sum[999] != x[999]+y[999] {
			t.Errorf("%s: got %v last, want %v", name, sum[999], x[999]+y[999])
		}
		panicOn(vm.Close())
	}
}

var errHangs = errors.New("hangs")

// start runs a program as a process of its own and returns its output.
func start(ctx context.Context, name string) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 25*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "STHENO_PROGRAM="+name, "GOTRACEBACK=all")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // with the stacks
	cmd.WaitDelay = 3 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	text = out.String()
	if ctx.Err() != nil {
		err = errHangs
		if all := stages.FindAllStringSubmatch(text, -1); all != nil {
			err = fmt.Errorf("%w in %s", errHangs, all[len(all)-1][1])
		}
	}
	if len(text) > 6000 {
		text = text[:3000] + "\n...\n" + text[len(text)-3000:]
	}
	return text, err
}

// stages are the lines that name the stages a machine has begun.
var stages = regexp.MustCompile(`(?m)^stage: (\w+)$`)

// findings are the results of a program before it ended or hung.
var findings = regexp.MustCompile(`(?m)^found: (.*)$`)

var telling = regexp.MustCompile(`(?m)^(?:panic|ERROR|grew).*`)

// outcome is the end of a program, in a few words.
func outcome(text string, err error) string {
	line := telling.FindString(text)
	switch {
	case errors.Is(err, errHangs):
		line = err.Error()
		if all := findings.FindAllStringSubmatch(text, -1); all != nil {
			line += ", after: " + all[len(all)-1][1]
		}
	case err == nil && line != "":
		return line
	case err == nil:
		return "right"
	case line == "":
		return "**" + err.Error() + "**"
	}
	line = strings.TrimPrefix(line, "ERROR: ")
	if r := []rune(line); len(r) > 110 {
		line = string(r[:110]) + "..."
	}
	return "**" + strings.ReplaceAll(line, "|", "/") + "**"
}

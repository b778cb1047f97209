package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

var (
	entryLine  = regexp.MustCompile(`Compiling entry function '([^']+)'`)
	stackLine  = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	usedLine   = regexp.MustCompile(`Used (\d+) registers`)
	sharedPart = regexp.MustCompile(`(\d+) bytes smem`)
)

// expected are lines in the log of every build: the assembler's report, and NVRTC's warning about sm_70, which only this compiler still supports.
var expected = regexp.MustCompile(`^(ptxas info|nvrtc: warning: Architectures prior to|\s*$)`)

// parseLog reads the assembler's report on each kernel. The rest of the log is warnings.
func parseLog(log string) (kernels []manifest.Kernel, warnings string) {
	var k manifest.Kernel
	number := func(s string) int { n, _ := strconv.Atoi(s); return n } // digits by the pattern
	for line := range strings.Lines(log) {
		if m := entryLine.FindStringSubmatch(line); m != nil {
			k = manifest.Kernel{Name: m[1]}
		} else if m := stackLine.FindStringSubmatch(line); m != nil {
			k.Stack, k.Spill = number(m[1]), number(m[2])+number(m[3])
		} else if m := usedLine.FindStringSubmatch(line); m != nil {
			k.Registers = number(m[1])
			if m := sharedPart.FindStringSubmatch(line); m != nil {
				k.Shared = number(m[1])
			}
			kernels = append(kernels, k)
		} else if !expected.MatchString(line) {
			warnings += line
		}
	}
	slices.SortFunc(kernels, func(a, b manifest.Kernel) int { return strings.Compare(a.Name, b.Name) })
	return kernels, warnings
}

var toolsLine = regexp.MustCompile(`Cuda compilation tools, release [\d.]+, V([\d.]+)`)

// compilerOf reads the compiler's full version out of PTX, since NVRTC's own call leaves the last part out.
func compilerOf(ptx []byte) string {
	if m := toolsLine.FindSubmatch(ptx); m != nil {
		return "NVRTC " + string(m[1])
	}
	return "NVRTC, version unknown"
}

// report prints the assembler's report on every kernel.
func report(m *manifest.Manifest) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "kernel\ttarget\tregisters\tstack\tspill\tshared\t")
	for _, s := range m.Sources {
		for _, i := range s.Images {
			for _, k := range i.Kernels {
				fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t\n", k.Name, i.Target, k.Registers, k.Stack, k.Spill, k.Shared)
			}
		}
	}
	w.Flush()
}

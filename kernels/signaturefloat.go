package kernels

import (
	"fmt"
	"maps"
	"regexp"
	"sync"

	"gonum.org/v1/gonum/blas/gonum"
)

var (
	instruction  = regexp.MustCompile(`(?m)^\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)\s+([^;\n]*);`)
	register64   = regexp.MustCompile(`%rd\d+`)
	memoryAccess = regexp.MustCompile(`^(?:ld|st|atom|red)\..*\.(f32|f64|[busf]\d+)$`)
	accessed     = regexp.MustCompile(`\[(%rd\d+)`)
	result64     = regexp.MustCompile(`\.[usb]64$`)
)

// several stands for an address that may point into the memory of one parameter or another.
const several = -1

// floats returns, by parameter, "float32" or "float64" if all loads and stores at addresses computed from it have that type, else "".
func (s signature) floats() []string {
	all := instruction.FindAllStringSubmatch(s.code, -1)
	addresses := maps.Clone(s.addresses)
	for changed := true; changed; { // loops lead back
		changed = false
		for _, in := range all {
			if memoryAccess.MatchString(in[1]) || !result64.MatchString(in[1]) {
				continue
			}
			registers := register64.FindAllString(in[2], -1)
			if len(registers) < 2 {
				continue
			}
			to := registers[0]
			for _, from := range registers[1:] {
				n, ok := addresses[from]
				if old, is := addresses[to]; is && ok && old != n {
					n = several
				}
				if old, is := addresses[to]; ok && (!is || old != n) {
					addresses[to], changed = n, true
				}
			}
		}
	}
	types := make([]map[string]bool, len(s.params))
	for _, in := range all {
		kind, at := memoryAccess.FindStringSubmatch(in[1]), accessed.FindStringSubmatch(in[2])
		if kind == nil || at == nil {
			continue
		}
		if n, ok := addresses[at[1]]; ok && n != several {
			if types[n] == nil {
				types[n] = map[string]bool{}
			}
			types[n][kind[1]] = true
		}
	}
	floats := make([]string, len(types))
	for n, t := range types {
		switch {
		case len(t) == 1 && t["f32"]:
			floats[n] = "float32"
		case len(t) == 1 && t["f64"]:
			floats[n] = "float64"
		}
	}
	return floats
}

// checkBody runs the Go body of a launch on zeros and compares its floating-point types with those of the entry point.
func (s signature) checkBody(p *Plan, l *Launch) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("its Go body panics on zeros: %v", r)
		}
	}()
	memory := func(bytes int64) []byte { return Bytes(make([]float64, CeilDiv(bytes, 8)))[:bytes] }
	c := Call{Launch: l, plan: p, outputs: p.outputs(memory(p.Out)), scratch: memory(p.Scratch), blas: gonum.Implementation{}}
	for _, n := range p.Inputs {
		c.inputs = append(c.inputs, memory(n))
	}
	floats := s.floats()
	var mu sync.Mutex // bodies work in several goroutines
	c.took = func(argument int, element any) {
		mu.Lock()
		defer mu.Unlock()
		got, want := fmt.Sprintf("%T", element), floats[argument]
		if float := got == "float32" || got == "float64"; float && want != "" && got != want && err == nil {
			err = fmt.Errorf("argument %d: its Go body takes %s, the entry point %s", argument, got, want)
		}
	}
	l.Kernel.Body(c)
	return err
}

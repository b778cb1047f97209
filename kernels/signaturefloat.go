package kernels

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"

	"gonum.org/v1/gonum/blas/gonum"
)

// several stands for an address that may point into the memory of one parameter or another.
const several = -1

// floats returns, by parameter, "float32" or "float64" if all loads and stores at addresses computed from it have that type, else "".
func (s signature) floats() []string {
	var moves [][]string              // registers, of which the first one is computed from the others
	accesses := map[string][]string{} // types of loads and stores, by the register that has the address
	for line := range strings.Lines(s.code) {
		text, _, _ := strings.Cut(line, ";")
		words := strings.Fields(text)
		if len(words) > 0 && words[0][0] == '@' { // a predicate
			words = words[1:]
		}
		if len(words) < 2 {
			continue
		}
		op := strings.Split(words[0], ".")
		kind := op[len(op)-1]
		_, address, _ := strings.Cut(text, "[")
		if slices.Contains([]string{"ld", "st", "atom", "red"}, op[0]) {
			if r := registers64(address); strings.HasPrefix(address, "%rd") {
				accesses[r[0]] = append(accesses[r[0]], kind)
			}
		} else if r := registers64(text); len(r) > 1 && slices.Contains([]string{"u64", "s64", "b64"}, kind) {
			moves = append(moves, r)
		}
	}
	addresses := maps.Clone(s.addresses)
	for changed := true; changed; { // loops lead back
		changed = false
		for _, r := range moves {
			for _, from := range r[1:] {
				n, ok := addresses[from]
				old, is := addresses[r[0]]
				if is && ok && old != n {
					n = several
				}
				if ok && (!is || old != n) {
					addresses[r[0]], changed = n, true
				}
			}
		}
	}
	types := make([]map[string]bool, len(s.params))
	for register, kinds := range accesses {
		n, ok := addresses[register]
		for _, kind := range kinds {
			if ok && n != several {
				if types[n] == nil {
					types[n] = map[string]bool{}
				}
				types[n][kind] = true
			}
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

// registers64 returns the registers of 64 bits that a text of PTX names.
func registers64(text string) (list []string) {
	for i := strings.Index(text, "%rd"); i >= 0; i = strings.Index(text, "%rd") {
		n := 3 + strings.IndexFunc(text[i+3:]+" ", func(r rune) bool { return !unicode.IsDigit(r) })
		list, text = append(list, text[i:i+n]), text[i+n:]
	}
	return list
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

package kernels

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"strings"

	"github.com/stheno-ml/stheno/kernels/internal/cubin"
)

// WaitsForDependencies reports whether the kernel of an entry point waits by itself for the kernels that it follows, before
// it uses memory of the device or ends, as follow.cuh has it. A device may start such a kernel
// before those are done. A prefetch to L2 may precede the wait, since the device's stores go to L2 too.
// So may a load with .L1::no_allocate but without .nc: generated kernels load what no launch of a run changes with it.
func (c Code) WaitsForDependencies(entry string) bool {
	if bytes.HasPrefix(c.Text, []byte("\x7fELF")) {
		return waitsSASS(c.Text, entry)
	}
	return waitsPTX(string(c.Text), entry)
}

// usesMemory matches the instructions of PTX that may not come before a kernel's wait: those that may use memory of
// the device, and those by which a thread may pass the wait.
var usesMemory = regexp.MustCompile(`^\s*(@!?%?\w+\s+)?(ld|ldu|st|atom|red|cp|prefetch\w*|tensormap|tex|tld4|suld|sust|sured|multimem|call|bra|brx|ret|exit|trap)\b`)

// waitsPTX is Waits of PTX.
func waitsPTX(text, entry string) bool {
	_, text, _ = strings.Cut(text, ".entry "+entry+"(")
	_, text, _ = strings.Cut(text, "{")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "griddepcontrol.wait") {
			return true
		}
		allowed := strings.HasPrefix(line, "ld.param") || strings.Contains(line, "prefetch.global.L2 ") || strings.Contains(line, "ld.global.L1::no_allocate.")
		if usesMemory.MatchString(line) && !allowed || line == "}" {
			return false
		}
	}
	return false
}

// Operations of the code of devices, the last twelve bits of an instruction of 16 bytes.
const (
	waitOperation = 0x82e // ACQBULK
	loadOperation = 0x981 // LDG
	jumpOperation = 0x947 // BRA
	jumpUniformly = 0x547 // BRA.U
)

// Bits of the second word of a LDG.
const (
	noAllocate = 1 << 22 // .NA
	readOnly   = 1 << 15 // .CONSTANT
)

// memoryOperations are those that usesMemory matches.
var memoryOperations = map[uint64]bool{
	0x980: true, loadOperation: true,
	0x385: true, 0x985: true, 0x986: true, 0x386: true, // ST, STG
	0xfae: true,              // LDGSTS
	0x38a: true, 0x98a: true, // ATOM
	0x3a8: true, 0x3a9: true, 0x9a8: true, 0x9a9: true, // ATOMG
	0x98e: true,                                                                                            // RED
	0x3b4: true, 0x5b4: true, 0x3b5: true, 0x5b5: true, 0x3b7: true, 0x5b7: true, 0x3ba: true, 0x5ba: true, // bulk copies
	0x943: true, 0x944: true, 0x949: true, 0x94a: true, 0x94d: true, 0x950: true, 0x958: true, // calls, indirect jumps, EXIT, RET
}

// waitsSASS is Waits of a cubin.
func waitsSASS(image []byte, entry string) bool {
	code := cubin.Section(image, ".text."+entry)
	farthest := 0 // that the jumps so far lead to
	for at := 0; at+16 <= len(code); at += 16 {
		low, high := binary.LittleEndian.Uint64(code[at:]), binary.LittleEndian.Uint64(code[at+8:])
		switch operation := low & 0xfff; {
		case operation == waitOperation:
			return low>>12&15 == 7 && farthest <= at // in every thread
		case operation == loadOperation && high&(noAllocate|readOnly) == noAllocate:
		case memoryOperations[operation]:
			return false
		case operation == jumpOperation, operation == jumpUniformly:
			words := int64(high<<30|low>>34)<<8>>8<<8 | int64(low>>16&0xff)
			farthest = max(farthest, at+16+int(4*words))
		}
	}
	return false
}

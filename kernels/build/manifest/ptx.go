package manifest

import (
	"bytes"
	"fmt"
	"strconv"
)

// pack and unpack of PTX: the compiler numbers registers in the order in which it makes them, so the difference from the last register
// of the same kind is more often the same number than the register is. With differences, PTX packs to 0.7 of its size.

// ptxDifferences returns PTX with the number of each register, such as %rd12, as the difference from the last one of its kind. It is an error if
// [ptxNumbers] does not return the text.
func ptxDifferences(text []byte) ([]byte, error) {
	differences := mapRegisters(text, func(last, n int) (int, int) { return n - last, n })
	if !bytes.Equal(ptxNumbers(differences), text) {
		return nil, fmt.Errorf("got PTX of %d bytes with a register that is not a name and a number, want those of NVRTC", len(text))
	}
	return differences, nil
}

// ptxNumbers is the inverse of ptxDifferences.
func ptxNumbers(text []byte) []byte {
	return mapRegisters(text, func(last, d int) (int, int) { return last + d, last + d })
}

// mapRegisters replaces the number of each register by another. write gets the last value that it returned for the register's kind, 0 at
// first, and the number. It returns the new number and the next value.
func mapRegisters(text []byte, write func(last, n int) (number, next int)) []byte {
	out := make([]byte, 0, len(text)+len(text)/8)
	last := map[string]int{}
	for {
		start := bytes.IndexByte(text, '%') + 1
		if start == 0 {
			return append(out, text...)
		}
		name := start
		for name < len(text) && 'a' <= text[name] && text[name] <= 'z' {
			name++
		}
		end := name
		if end < len(text) && text[end] == '-' {
			end++
		}
		for end < len(text) && '0' <= text[end] && text[end] <= '9' {
			end++
		}
		n, err := strconv.Atoi(string(text[name:end]))
		out = append(out, text[:name]...)
		if err != nil { // no number follows
			out = append(out, text[name:end]...)
		} else {
			kind := string(text[start:name])
			n, last[kind] = write(last[kind], n)
			out = strconv.AppendInt(out, int64(n), 10)
		}
		text = text[end:]
	}
}

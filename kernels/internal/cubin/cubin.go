// Package cubin reads compiled kernels.
package cubin

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// Section returns a section of a cubin, nil if there is none of that name. Package debug/elf takes no cubins, which have a version of their own.
func Section(cubin []byte, name string) []byte {
	var header elf.Header64
	read := func(at uint64, to any) bool {
		return at < uint64(len(cubin)) && binary.Read(bytes.NewReader(cubin[at:]), binary.LittleEndian, to) == nil
	}
	if !read(0, &header) {
		return nil
	}
	sections := make([]elf.Section64, header.Shnum)
	if !read(header.Shoff, sections) || int(header.Shstrndx) >= len(sections) {
		return nil
	}
	content := func(s elf.Section64) []byte {
		if s.Off > uint64(len(cubin)) || s.Size > uint64(len(cubin))-s.Off {
			return nil
		}
		return cubin[s.Off : s.Off+s.Size]
	}
	names := content(sections[header.Shstrndx])
	for _, s := range sections {
		if uint64(s.Name) < uint64(len(names)) && bytes.HasPrefix(names[s.Name:], append([]byte(name), 0)) {
			return content(s)
		}
	}
	return nil
}

// Package cubin reads compiled kernels.
package cubin

import (
	"bytes"
	"encoding/binary"
)

// header and section are the fields of an ELF file's header, and of a section's, that Section reads. Package debug/elf takes no cubins, which have a
// version of their own, and makes each program larger.
type header struct {
	_             [40]byte
	Sections      uint64
	_             [12]byte
	Count, NameAt uint16
}

type section struct {
	Name         uint32
	_            [20]byte
	Offset, Size uint64
	_            [24]byte
}

// Section returns a section of a cubin, nil if there is none of that name.
func Section(cubin []byte, name string) []byte {
	var h header
	read := func(at uint64, to any) bool {
		return at < uint64(len(cubin)) && binary.Read(bytes.NewReader(cubin[at:]), binary.LittleEndian, to) == nil
	}
	if !read(0, &h) {
		return nil
	}
	sections := make([]section, h.Count)
	if !read(h.Sections, sections) || int(h.NameAt) >= len(sections) {
		return nil
	}
	content := func(s section) []byte {
		if s.Offset > uint64(len(cubin)) || s.Size > uint64(len(cubin))-s.Offset {
			return nil
		}
		return cubin[s.Offset : s.Offset+s.Size]
	}
	names := content(sections[h.NameAt])
	for _, s := range sections {
		if uint64(s.Name) < uint64(len(names)) && bytes.HasPrefix(names[s.Name:], append([]byte(name), 0)) {
			return content(s)
		}
	}
	return nil
}

// Package cubin reads compiled kernels.
package cubin

import (
	"bytes"
	"encoding/binary"
	"iter"
)

// header and section are the fields of an ELF file's header, and of a section's, that this package reads. Package debug/elf takes no cubins, which have a
// version of their own, and makes each program larger.
type header struct {
	_             [40]byte
	Sections      uint64
	_             [12]byte
	Count, NameAt uint16
}

type section struct {
	Name         uint32
	_            [4]byte
	Flags        uint64
	_            [8]byte
	Offset, Size uint64
	_            [24]byte
}

const executable = 4 // a flag of sections of instructions

// read returns the sections of a cubin, and the number of the section of their names. It returns none for other bytes.
func read(cubin []byte) (sections []section, names uint16) {
	var h header
	read := func(at uint64, to any) bool {
		return at < uint64(len(cubin)) && binary.Read(bytes.NewReader(cubin[at:]), binary.LittleEndian, to) == nil
	}
	if !bytes.HasPrefix(cubin, []byte("\x7fELF")) || !read(0, &h) {
		return nil, 0
	}
	sections = make([]section, h.Count)
	if !read(h.Sections, sections) {
		return nil, 0
	}
	return sections, h.NameAt
}

// of returns the bytes of a section, nil if the cubin ends before them.
func (s section) of(cubin []byte) []byte {
	if s.Offset > uint64(len(cubin)) || s.Size > uint64(len(cubin))-s.Offset {
		return nil
	}
	return cubin[s.Offset : s.Offset+s.Size]
}

// Section returns a section of a cubin, nil if there is none of that name.
func Section(cubin []byte, name string) []byte {
	sections, at := read(cubin)
	if int(at) >= len(sections) {
		return nil
	}
	names := sections[at].of(cubin)
	for _, s := range sections {
		if uint64(s.Name) < uint64(len(names)) && bytes.HasPrefix(names[s.Name:], append([]byte(name), 0)) {
			return s.of(cubin)
		}
	}
	return nil
}

// Code yields the sections of instructions, each of 16 bytes.
func Code(cubin []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		sections, _ := read(cubin)
		for _, s := range sections {
			if s.Flags&executable != 0 && !yield(s.of(cubin)) {
				return
			}
		}
	}
}

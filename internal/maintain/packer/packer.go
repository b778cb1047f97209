// Package packer compresses images with Zstandard's own library at its highest level: to a sixth less than the Go library does that unpacks them.
package packer

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// Wheel is the Python package that holds the library. Its version decides the bytes.
const Wheel = "zstandard==0.25.0"

//go:embed pack.py
var script string

// New returns a packer that runs python3 with the packages in a folder, the toolkit.
func New(toolkit string) manifest.Packer {
	return func(texts, dictionaries [][]byte) ([][]byte, error) {
		folder, err := filepath.Abs(toolkit)
		if err != nil {
			return nil, err
		}
		var in, out, said bytes.Buffer
		for i, text := range texts {
			for _, part := range [][]byte{dictionaries[i], text} {
				in.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(part))))
				in.Write(part)
			}
		}
		c := exec.Command("python3", "-c", script, strconv.Itoa(len(texts)))
		c.Env = append(os.Environ(), "PYTHONPATH="+folder)
		c.Stdin, c.Stdout, c.Stderr = &in, &out, &said
		if err := c.Run(); err != nil {
			return nil, fmt.Errorf("python3 with %s of %s, where `make toolkit` puts it: %w\n%s", Wheel, toolkit, err, &said)
		}
		packed := make([][]byte, len(texts))
		for i := range packed {
			size := out.Next(4)
			if len(size) < 4 || int(binary.LittleEndian.Uint32(size)) > out.Len() {
				return nil, errors.New("python3 has packed less than it was given")
			}
			packed[i] = out.Next(int(binary.LittleEndian.Uint32(size)))
		}
		return packed, nil
	}
}

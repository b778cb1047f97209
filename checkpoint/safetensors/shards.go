package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// The names that [Open] looks for in a folder.
const (
	indexName = "model.safetensors.index.json"
	wholeName = "model.safetensors"
)

// Open opens a file, the shards of an index, or a folder, of which it opens model.safetensors.index.json or else
// model.safetensors. It checks all headers, that index and shards have the same tensors, and that each tensor is in one shard.
// Shards are in the folder of the index. The caller closes the File.
func Open(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		dir := path
		path = filepath.Join(dir, indexName)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			path = filepath.Join(dir, wholeName)
		}
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%s: want a folder with %s or %s: %w", dir, indexName, wholeName, err)
		}
	}
	from, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	var f *File
	if start := make([]byte, 8); readAt(from, start, 0) == nil && start[0] == '{' && start[7] != 0 { // text, no header's length
		f, err = newShards(filepath.Dir(path), from, size)
		err = errors.Join(err, from.Close())
	} else if f, err = New(from, size); err == nil {
		f.open = []io.Closer{from}
	} else {
		err = errors.Join(err, from.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// openRegular opens a regular file.
func openRegular(path string) (f *os.File, size int64, err error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // opening a pipe would wait for its writer
		err = fmt.Errorf("%s: got a file of mode %v, want a regular one", path, info.Mode())
	}
	if err == nil {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err != nil { // another file may have replaced the first
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// newShards opens the shards of an index.
func newShards(dir string, index io.ReaderAt, size int64) (*File, error) {
	if size > largestHeader {
		return nil, fmt.Errorf("got an index of %d bytes, want %d at most", size, largestHeader)
	}
	text := make([]byte, size)
	if err := readAt(index, text, 0); err != nil {
		return nil, err
	}
	shardOf, err := parseIndex(text)
	if err != nil {
		return nil, fmt.Errorf("no index of shards: %w", err)
	}
	f := &File{}
	for _, name := range slices.Compact(slices.Sorted(maps.Values(shardOf))) {
		if err := f.add(filepath.Join(dir, name), name, shardOf); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	f.enumerate()
	for _, name := range slices.Sorted(maps.Keys(shardOf)) {
		if f.Find(name) == nil {
			return nil, errors.Join(fmt.Errorf("tensor %q: got a shard %s without it, want it there as in the index", name, shardOf[name]), f.Close())
		}
	}
	return f, nil
}

// add opens a shard and adds its tensors.
func (f *File) add(path, name string, shardOf map[string]string) error {
	from, size, err := openRegular(path)
	if err != nil {
		return err
	}
	f.open = append(f.open, from)
	shard, err := New(from, size)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, t := range shard.Tensors {
		if shardOf[t.Name] != name {
			return fmt.Errorf("tensor %q: got it in %s, want it in %q as in the index", t.Name, name, shardOf[t.Name])
		}
	}
	f.Tensors = append(f.Tensors, shard.Tensors...)
	return nil
}

// parseIndex returns the name of the shard of each tensor.
func parseIndex(b []byte) (shardOf map[string]string, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	err = object(d, func(key string) error {
		if key != "weight_map" {
			return d.Decode(new(json.RawMessage))
		}
		shardOf = map[string]string{}
		return object(d, func(name string) error {
			shard, err := text(d)
			if err == nil && (filepath.Base(shard) != shard || !filepath.IsLocal(shard)) {
				err = fmt.Errorf("got the shard %q, want the name of a file in the index's folder", shard)
			}
			if err != nil {
				return fmt.Errorf("tensor %q: %w", name, err)
			}
			shardOf[name] = shard
			return nil
		})
	})
	if rest := b[d.InputOffset():]; err == nil && len(bytes.TrimSpace(rest)) > 0 {
		err = fmt.Errorf("got %.20q after its end", rest)
	}
	if err == nil && len(shardOf) == 0 {
		err = errors.New(`got no tensors in "weight_map"`)
	}
	return shardOf, err
}

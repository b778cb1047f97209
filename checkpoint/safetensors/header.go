package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"
)

// parse reads the header.
func (f *File) parse(header []byte) error {
	if !utf8.Valid(header) {
		return errors.New("got bytes that are not UTF-8")
	}
	if len(header) == 0 || header[0] != '{' {
		return errors.New("want it to begin with {")
	}
	d := json.NewDecoder(bytes.NewReader(header))
	d.UseNumber()
	err := object(d, func(name string) error {
		if name == metadataKey {
			f.Metadata = map[string]string{}
			return object(d, func(key string) error {
				s, err := text(d)
				if err != nil {
					return fmt.Errorf("%s, %q: %w", metadataKey, key, err)
				}
				f.Metadata[key] = s
				return nil
			})
		}
		t, err := tensor(d, name)
		f.Tensors = append(f.Tensors, t)
		return err
	})
	if err != nil {
		return err
	}
	if rest := header[d.InputOffset():]; len(bytes.TrimLeft(rest, " ")) > 0 {
		return fmt.Errorf("got %.20q after its end", rest)
	}
	return nil
}

// tensor reads the header's entry of a tensor.
func tensor(d *json.Decoder, name string) (t Tensor, err error) {
	t.Name = name
	var shape, offsets []uint64
	err = object(d, func(key string) (err error) {
		switch key {
		case "dtype":
			t.Dtype, err = text(d)
		case "shape":
			shape, err = numbers(d)
		case "data_offsets":
			offsets, err = numbers(d)
		default:
			err = fmt.Errorf("got %q", key)
		}
		return err
	})
	if err == nil && (t.Dtype == "" || shape == nil || len(offsets) != 2) {
		err = fmt.Errorf("got the dtype %q, shape %v and data_offsets %v, want all of them, and two offsets", t.Dtype, shape, offsets)
	}
	if err != nil {
		return t, fmt.Errorf("tensor %q: %w", name, err)
	}
	for _, n := range shape {
		t.Shape = append(t.Shape, int(n))
	}
	t.begin, t.end = offsets[0], offsets[1]
	return t, nil
}

// object reads an object: entry reads the value of each key, which is there once.
func object(d *json.Decoder, entry func(key string) error) error {
	if err := delimiter(d, '{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := next(d)
		if err != nil {
			return err
		}
		key, ok := token.(string)
		if !ok {
			return fmt.Errorf("got %v, want a name", token)
		}
		if seen[key] {
			return fmt.Errorf("got %q twice", key)
		}
		seen[key] = true
		if err := entry(key); err != nil {
			return err
		}
	}
	return delimiter(d, '}')
}

func delimiter(d *json.Decoder, want json.Delim) error {
	token, err := next(d)
	if err == nil && token != want {
		err = fmt.Errorf("got %v, want %v", token, want)
	}
	return err
}

func next(d *json.Decoder) (json.Token, error) {
	token, err := d.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return token, err
}

// text reads a string.
func text(d *json.Decoder) (string, error) {
	token, err := next(d)
	s, ok := token.(string)
	if err == nil && !ok {
		err = fmt.Errorf("got %v, want a string", token)
	}
	return s, err
}

// numbers reads a list of numbers that are whole and not negative.
func numbers(d *json.Decoder) ([]uint64, error) {
	if err := delimiter(d, '['); err != nil {
		return nil, err
	}
	list := []uint64{}
	for d.More() {
		token, err := next(d)
		if err != nil {
			return nil, err
		}
		text, ok := token.(json.Number)
		n, err := strconv.ParseUint(text.String(), 10, 64)
		if !ok || err != nil || n > math.MaxInt {
			return nil, fmt.Errorf("got %v, want a whole number from 0 to %d", token, math.MaxInt)
		}
		list = append(list, n)
	}
	return list, delimiter(d, ']')
}

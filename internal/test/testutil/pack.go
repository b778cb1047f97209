package testutil

import "github.com/klauspost/compress/zstd"

// Pack compresses texts as a manifest.Packer does, without a toolkit.
func Pack(texts, dictionaries [][]byte) ([][]byte, error) {
	packed := make([][]byte, len(texts))
	for i, text := range texts {
		options := []zstd.EOption{zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1)}
		if len(dictionaries[i]) > 0 {
			options = append(options, zstd.WithEncoderDictRaw(0, dictionaries[i]))
		}
		w, err := zstd.NewWriter(nil, options...)
		if err != nil {
			return nil, err
		}
		packed[i] = w.EncodeAll(text, nil)
	}
	return packed, nil
}

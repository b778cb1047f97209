package safetensors

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// folder writes files into a new folder.
func folder(t *testing.T, files map[string][]byte) string {
	dir := t.TempDir()
	for name, b := range files {
		testutil.Do(t, os.WriteFile(filepath.Join(dir, name), b, 0o666))
	}
	return dir
}

// shards are a model in two files.
func shards(t *testing.T) (files map[string][]byte, tensors []Tensor) {
	tensors = []Tensor{
		{Name: "a", Dtype: "F32", Shape: []int{2}, Data: []byte("12345678")}, {Name: "b", Dtype: "U8", Data: []byte("9")},
		{Name: "c", Dtype: "BF16", Shape: []int{1, 3}, Data: []byte("abcdef")},
	}
	var one, two bytes.Buffer
	testutil.Do(t, Write(&one, map[string]string{"format": "pt"}, tensors[:2]))
	testutil.Do(t, Write(&two, nil, tensors[2:]))
	return map[string][]byte{
		"one.safetensors": one.Bytes(), "two.safetensors": two.Bytes(),
		indexName: []byte(`{"metadata":{"total_size":[15,{}]},"weight_map":{"c":"two.safetensors","a":"one.safetensors","b":"one.safetensors"}}`),
	}, tensors
}

// A folder, an index and a file are opened by their paths.
func TestOpen(t *testing.T) {
	files, tensors := shards(t)
	dir := folder(t, files)
	whole := folder(t, map[string][]byte{wholeName: files["two.safetensors"]})
	for path, want := range map[string][]Tensor{
		dir: tensors, filepath.Join(dir, indexName): tensors, filepath.Join(dir, "one.safetensors"): tensors[:2],
		whole: tensors[2:], filepath.Join(whole, wholeName): tensors[2:],
	} {
		f := testutil.Get[*File](t)(Open(path))
		if err := differ(f, want); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if f.Find("d") != nil {
			t.Errorf("%s: found a tensor that it does not have", path)
		}
		testutil.Do(t, f.Close())
	}
}

func TestOpenErrors(t *testing.T) {
	for want, change := range map[string]func(files map[string][]byte){
		"two.safetensors: ":                                    func(f map[string][]byte) { delete(f, "two.safetensors") },
		`truncated: tensor "c"`:                                func(f map[string][]byte) { f["two.safetensors"] = f["two.safetensors"][:len(f["two.safetensors"])-1] },
		`tensor "a": got it in two`:                            func(f map[string][]byte) { f["two.safetensors"] = f["one.safetensors"] },
		`tensor "b": got it in one.safetensors, want it in ""`: edited(`,"b":"one.safetensors"`, ""),
		`tensor "c": got a shard one.safetensors without it`:   edited("two.safe", "one.safe"),
		`tensor "c": got the shard "../two.safetensors"`:       edited("two.safe", "../two.safe"),
		`tensor "c": got the shard ".."`:                       edited("two.safetensors", ".."),
		`tensor "c": got the shard "x/y"`:                      edited("two.safetensors", "x/y"),
		`tensor "c": got the shard ""`:                         edited("two.safetensors", ""),
		`got "b" twice`:                                        edited(`"a"`, `"b"`),
		`tensor "c": got 1, want a string`:                     edited(`"two.safetensors"`, "1"),
		`no tensors in "weight_map"`:                           edited("weight_map", "map"),
		`got "{}\n" after its end`:                             edited(`"}}`, "\"}}{}\n"),
		"unexpected EOF":                                       edited(`"}}`, `"`),
		"want a folder with " + indexName + " or " + wholeName: func(f map[string][]byte) { delete(f, indexName) },
		`index.json: not a safetensors file: `:                 edited("two.safetensors", indexName),
	} {
		files, _ := shards(t)
		change(files)
		f, err := Open(folder(t, files))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, the error %v, want one with %q", f, err, want)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("no file gives the error %v", err)
	}
}

// edited replaces a text of the index.
func edited(from, to string) func(files map[string][]byte) {
	return func(files map[string][]byte) {
		files[indexName] = bytes.Replace(files[indexName], []byte(from), []byte(to), 1)
	}
}

// Whatever an index has, parseIndex does not panic, and the names of shards are those of files.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{},"weight_map":{"a":"b"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../b"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		shardOf, err := parseIndex(b)
		for name, shard := range shardOf {
			if err == nil && filepath.Dir(filepath.Join("x", shard)) != "x" {
				t.Errorf("%q is in %q", name, shard)
			}
		}
	})
}

package main

import (
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"gorgonia.org/tensor"
)

// The model is loaded, has PyTorch's logits (the program fails if not) and writes, and the page and its figure are there.
func TestPretrained(t *testing.T) {
	notebooktest.Run(t, title, files, run, 1, "transformer.h.0.attn.c_attn.weight", "func logits(", "func load(", "func write(", "there are 5248 logits", "logits.png")
}

// The store has the parameters of the network in PyTorch's shapes, and neither masks nor the embeddings twice.
func TestLoad(t *testing.T) {
	store := load("testdata/model.safetensors")
	defer store.Close()
	list := testutil.Get[[]cudaops.Learnable](t)(store.Parameters())
	if want := 4 + 12*layers; len(list) != want {
		t.Errorf("got %d parameters, want %d", len(list), want)
	}
	for _, p := range list {
		if p.Name == "h.0.mlp.c_fc.weight" && !p.Value.Shape().Eq(tensor.Shape{4 * width, width}) {
			t.Errorf("%s has shape %v, want (out, in)", p.Name, p.Value.Shape())
		}
	}
}

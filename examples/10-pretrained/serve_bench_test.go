package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	clients "github.com/stheno-ml/stheno/examples/internal/load"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// guesser guesses the letter after each of a number of texts, in runs of at most so many.
type guesser struct{ *cudaops.Cache }

func newGuesser(b *testing.B, store *cudaops.Store, most int) guesser {
	var sizes []int
	for n := 1; n < most; n *= 2 {
		sizes = append(sizes, n)
	}
	c := testutil.Get[*cudaops.Cache](b)(cudaops.NewCache(store, func(n int) (*cudaops.Sized, error) {
		s := nn.New(G.NewGraph(), nn.In(store), nn.Evaluation())
		x := s.Input("x", tensor.Uint8, n, context)
		y := s.Keep(ops.ArgMax(s.Keep(ops.Slice(logits(s, x), nil, G.S(context-1))), -1))
		return &cudaops.Sized{Graph: s.Graph(), In: []*G.Node{x}, Out: []*G.Node{y}, Options: []cudaops.Option{cudaops.OnAny(), cudaops.Inference()}}, s.Err()
	}, cudaops.Limit{Rows: most, Sizes: append(sizes, most)}))
	b.Cleanup(func() { testutil.Do(b, c.Close()) })
	return guesser{c}
}

// alone returns the median time of runs of all texts, so many at a time and nothing else, and the guesses.
func (g guesser) alone(b *testing.B, texts []byte, n int) (median time.Duration, guesses []byte) {
	var took []time.Duration
	testutil.Do(b, g.Do(b.Context(), n, func(vm *cudaops.VM, graph *cudaops.Sized) error {
		for range 1 + 200*n*context/len(texts) {
			guesses = nil
			for part := range slices.Chunk(texts, n*context) {
				began := time.Now()
				testutil.Do(b, vm.Let(graph.In[0], part))
				testutil.Do(b, vm.RunAll())
				took = append(took, time.Since(began))
				guesses = bytesOf(guesses, graph.Out[0].Value())
			}
		}
		return nil
	}))
	slices.Sort(took)
	return took[len(took)/2], guesses
}

// bytesOf appends letters to bytes.
func bytesOf(b []byte, v G.Value) []byte {
	for _, letter := range v.Data().([]int) {
		b = append(b, byte(letter))
	}
	return b
}

// ServeHTTP answers texts with a letter for each.
func (g guesser) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	texts, err := io.ReadAll(r.Body)
	var out []G.Value
	if err == nil {
		out, err = g.Run(r.Context(), tensor.New(tensor.WithShape(len(texts)/context, context), tensor.WithBacking(texts)))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(bytesOf(nil, out[0])) // a client that is gone needs none
}

// BenchmarkServe is 20 000 requests of 64 clients to an HTTP server on loopback, each of 1 to 32 texts, in runs of at most a number of texts. It reports the texts a second, also as a
// share of those of runs of 32 alone, and how long requests take, in such runs and in runs of that number. With -short there are 640 requests.
func BenchmarkServe(b *testing.B) {
	const connections, most = 64, 32
	requests := int64(20_000)
	if testing.Short() {
		requests = 640
	}
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // as examples/serve
	store := load("testdata/model.safetensors")
	defer store.Close()
	seed := testutil.Seed(b)
	r := rand.New(rand.NewPCG(seed, connections))
	texts := make([]byte, 1024*context)
	for i := range texts {
		texts[i] = byte(r.IntN(vocabulary))
	}
	of32, want := newGuesser(b, store, most).alone(b, texts, most)
	for _, rows := range []int{32, 256, 1024} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			g := newGuesser(b, store, rows)
			whole, _ := g.alone(b, texts, rows)
			server := httptest.NewServer(g)
			defer server.Close()
			client := clients.Client(connections)
			defer client.CloseIdleConnections()
			var answered atomic.Int64
			run := func(requests int64) (waits []time.Duration, took time.Duration) {
				answered.Store(0)
				waits, took, err := clients.Run(connections, requests, seed, func(r *rand.Rand) error {
					n := 1 + r.IntN(most)
					at := r.IntN(len(texts)/context - n)
					got, _, err := clients.Post(client, server.URL, texts[at*context:][:n*context])
					if err == nil && !bytes.Equal(got, want[at:at+n]) {
						err = fmt.Errorf("got %q, want %q", got, want[at:at+n])
					}
					answered.Add(int64(n))
					return err
				})
				if err != nil {
					b.Errorf("seed %d: %v", seed, err)
				}
				return waits, took
			}
			run(requests / 10) // makes the VMs
			for b.Loop() {
				list, took := run(requests)
				slices.Sort(list)
				rate := float64(answered.Load()) / took.Seconds()
				b.ReportMetric(rate, "texts/s")
				b.ReportMetric(rate*of32.Seconds()/most, "of-32-alone")
				for name, d := range map[string]time.Duration{"p50": list[len(list)/2], "p99": list[len(list)*99/100]} {
					b.ReportMetric(float64(d)/float64(of32), "runs-of-32-"+name)
					b.ReportMetric(float64(d)/float64(whole), "runs-"+name)
				}
			}
			b.ReportMetric(float64(of32.Microseconds()), "us/run-of-32")
			b.ReportMetric(float64(whole.Microseconds()), "us/run")
		})
	}
}

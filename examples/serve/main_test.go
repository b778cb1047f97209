package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/examples/internal/load"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// newStore returns a store with weights.
func newStore(t testing.TB) *cudaops.Store {
	store := cudaops.NewStore()
	t.Cleanup(func() { testutil.Do(t, store.Close()) })
	s := nn.New(G.NewGraph(), nn.In(store), nn.Seed(1))
	model(s, 1)
	vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Inference()))
	testutil.Do(t, vm.Close())
	return store
}

// pool is images, as pixels, and the probabilities that a VM of its own, for all of them at once, computes.
type pool struct {
	pixels []byte
	p      []float32
}

func newPool(t *testing.T, store *cudaops.Store, r *rand.Rand, n int) *pool {
	pixels, set := make([]byte, n*digits.Pixels), digits.Set{}
	for i := range pixels {
		pixels[i] = byte(r.IntN(17))
		set.Images = append(set.Images, float32(pixels[i])/16)
	}
	s := nn.New(G.NewGraph(), nn.In(store), nn.Evaluation())
	x, p := model(s, n)
	vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny()))
	defer vm.Close()
	testutil.Do(t, G.Let(x, set.Planes()))
	testutil.Do(t, vm.RunAll())
	return &pool{pixels, p.Value().Data().([]float32)}
}

// draw returns the numbers of some images and their pixels.
func (p *pool) draw(r *rand.Rand, n int) (of []int, pixels []byte) {
	for range n {
		i := r.IntN(len(p.pixels) / digits.Pixels)
		of, pixels = append(of, i), append(pixels, p.pixels[i*digits.Pixels:][:digits.Pixels]...)
	}
	return of, pixels
}

// check returns an error unless the answers are those of the images, in their order.
func (p *pool) check(of []int, answers []Answer) error {
	if len(answers) != len(of) {
		return fmt.Errorf("got %d answers for %d images", len(answers), len(of))
	}
	for k, i := range of {
		want := p.p[i*digits.Classes:][:digits.Classes]
		a := answers[k]
		if a.Digit < 0 || a.Digit >= digits.Classes {
			return fmt.Errorf("answer %d is %+v", k, a)
		}
		for _, other := range want {
			if float64(other-want[a.Digit]) > 1e-5 || !(math.Abs(float64(a.Probability-want[a.Digit])) <= 1e-5) {
				return fmt.Errorf("answer %d is %+v, want that of %v", k, a, want)
			}
		}
	}
	return nil
}

// ask sends a request. It returns the answers, or the status if it is another than 200.
func ask(client *http.Client, url string, pixels []byte) (answers []Answer, status int, err error) {
	body, status, err := load.Post(client, url, pixels)
	if err == nil && status == http.StatusOK {
		err = json.Unmarshal(body, &answers)
	}
	return answers, status, err
}

// start serves on loopback until stop is called.
func start(t *testing.T, store *cudaops.Store) (url string, stop context.CancelFunc, ended chan error) {
	cache := testutil.Get[*cudaops.Cache](t)(newCache(store))
	l := testutil.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	ctx, stop := context.WithCancel(t.Context())
	ended = make(chan error, 1)
	go func() { ended <- serve(ctx, l, handler(cache), cache) }()
	return fmt.Sprintf("http://%v/digits", l.Addr()), stop, ended
}

// heap returns the bytes in use after garbage collections.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // pools keep what they hold through one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// 64 clients with batches of 1 to 32 images get the answers to their own images, in order, and memory does not grow. When the server stops while
// they go on, each request that it accepted is answered.
func TestLoad(t *testing.T) {
	requests, clients := int64(1600), 64
	switch {
	case os.Getenv("STHENO_REQUESTS") == "1":
		requests = 20_000
	case testing.Short():
		requests = 1000
	}
	seed := testutil.Seed(t)
	store := newStore(t)
	p := newPool(t, store, rand.New(rand.NewPCG(seed, 0)), 500)
	url, stop, ended := start(t, store)
	client := load.Client(clients)
	var answered, images atomic.Int64
	// run lets the clients send n requests, or as many as there are until the server refuses connections.
	run := func(part uint64, n int64, stopping bool) time.Duration {
		_, took, err := load.Run(clients, n, seed+part, func(r *rand.Rand) error {
			of, pixels := p.draw(r, 1+r.IntN(32))
			answers, status, err := ask(client, url, pixels)
			switch {
			case err != nil && stopping && (strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "reset") || strings.Contains(err.Error(), "closed idle connection")):
				return load.ErrStopped // the server did not accept it; TestShutdown counts accepted requests
			case err == nil && status != http.StatusOK:
				err = fmt.Errorf("got status %d", status)
			case err == nil:
				err = p.check(of, answers)
			}
			if err == nil {
				answered.Add(1)
				images.Add(int64(len(of)))
			}
			return err
		})
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		return took
	}
	run(1, requests/4, false)
	before := heap()
	took := run(2, requests-requests/4, false)
	if answered.Load() != requests {
		t.Errorf("%d answers to %d requests", answered.Load(), requests)
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("%d bytes are in use after %d requests, %d after a quarter of them", after, requests, before)
	}
	t.Logf("%d requests with %d images, the last three quarters at %.0f requests/s", requests, images.Load(), float64(requests-requests/4)/took.Seconds())
	time.AfterFunc(100*time.Millisecond, stop)
	run(3, 1<<40, true)
	testutil.Do(t, <-ended)
	client.CloseIdleConnections()
}

// A server that stops answers all requests that its handler has begun.
func TestShutdown(t *testing.T) {
	store := newStore(t)
	p := newPool(t, store, rand.New(rand.NewPCG(1, 2)), 50)
	cache := testutil.Get[*cudaops.Cache](t)(newCache(store))
	var begun, answered atomic.Int64
	counting := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun.Add(1)
		handler(cache).ServeHTTP(w, r)
	})
	l := testutil.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, counting, cache) }()
	client, url := load.Client(64), fmt.Sprintf("http://%v/digits", l.Addr())
	var clients sync.WaitGroup
	clients.Go(func() {
		_, _, err := load.Run(64, 1<<40, 3, func(r *rand.Rand) error {
			of, pixels := p.draw(r, 1+r.IntN(32))
			answers, status, err := ask(client, url, pixels)
			if err != nil {
				return load.ErrStopped
			}
			answered.Add(1)
			if status != http.StatusOK {
				return fmt.Errorf("got status %d", status)
			}
			return p.check(of, answers)
		})
		testutil.Do(t, err)
	})
	for answered.Load() < 200 {
		time.Sleep(time.Millisecond)
	}
	stop()
	testutil.Do(t, <-ended)
	clients.Wait()
	if begun.Load() != answered.Load() {
		t.Errorf("%d requests were accepted, %d answered", begun.Load(), answered.Load())
	}
}

// TestSizes: a batch of any size is answered; a body that holds no images is refused.
func TestSizes(t *testing.T) {
	store := newStore(t)
	r := rand.New(rand.NewPCG(1, 2))
	p := newPool(t, store, r, 300)
	url, stop, ended := start(t, store)
	for _, n := range []int{1, 8, 9, 63, 64, 65, 200} {
		of, pixels := p.draw(r, n)
		answers, status, err := ask(http.DefaultClient, url, pixels)
		if err == nil {
			err = p.check(of, answers)
		}
		if err != nil || status != http.StatusOK {
			t.Errorf("%d images: status %d, %v", n, status, err)
		}
	}
	for _, body := range [][]byte{nil, {1}, make([]byte, 65), make([]byte, 2<<20), bytes.Repeat([]byte{17}, 64)} {
		if _, status, err := ask(http.DefaultClient, url, body); err != nil || status != http.StatusBadRequest {
			t.Errorf("%d bytes: status %d, %v, want %d", len(body), status, err, http.StatusBadRequest)
		}
	}
	stop()
	testutil.Do(t, <-ended)
	http.DefaultClient.CloseIdleConnections()
}

// The weights come from a file; one that is not there, one of another network and an address that is none are errors.
func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	if err := run("127.0.0.1:0", path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got error %v, want one with %s", err, path)
	}
	testutil.Do(t, checkpoint.SaveStore(path, newStore(t)))
	var of *net.OpError
	if err := run("nowhere:-1", path); !errors.As(err, &of) {
		t.Errorf("got error %v, want one of listening", err)
	}
	other := cudaops.NewStore()
	defer other.Close()
	testutil.Do(t, other.SetParameters([]cudaops.Learnable{{Name: "conv1.weight", Value: tensor.New(tensor.WithShape(1), tensor.WithBacking([]float32{1}))}}))
	testutil.Do(t, checkpoint.SaveStore(path, other))
	if err := run("127.0.0.1:0", path); err == nil || !strings.Contains(err.Error(), "conv1: parameter conv1.weight: got float32 of shape (16, 1, 3, 3), want float32 of shape (1)") {
		t.Errorf("got error %v, want one of another network's weights", err)
	}
}

// Serve answers HTTP requests with the network of 07-convnet: batches of any size, from one set of weights.
//
//	go run ./examples/07-convnet -state run-
//	go run ./examples/serve -weights run-seed1.best
//	curl --data-binary @images http://localhost:8080/digits
//
// An image is 64 bytes, the rows of 8 x 8 pixels from 0, paper, to 16, ink. The answer is JSON: a digit and its probability for each
// image, in their order. Interrupted, the program answers what it has accepted, and ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/internal/command"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func main() {
	debug.SetGCPercent(800) // the heap is a few MB: by default it is collected hundreds of times a second, while requests wait
	address, weights := flag.String("address", "localhost:8080", "where to listen"), flag.String("weights", "run-seed1.best", "file of the weights")
	command.Flags("serve")
	command.Exit("serve", run(*address, *weights))
}

func run(address, weights string) error {
	store := cudaops.NewStore()
	defer store.Close()
	if _, err := checkpoint.LoadStore(weights, store); err != nil {
		return err
	}
	cache, err := newCache(store)
	if err == nil {
		_, err = read(context.Background(), cache, make([]byte, digits.Pixels)) // an error, if the weights are those of another network
	}
	if err != nil {
		return errors.Join(err, cache.Close())
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return errors.Join(err, cache.Close())
	}
	fmt.Printf("http://%v/digits\n", l.Addr())
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	return serve(ctx, l, handler(cache), cache)
}

// model returns the probabilities of n images, by the layers of 07-convnet.
func model(s *nn.Scope, n int) (x, p *G.Node) {
	x = s.Input("x", tensor.Float32, n, 1, digits.Side, digits.Side)
	h := nn.MaxPool2d(s, nn.ReLU(s, nn.Conv2d(s.At("conv1"), x, 16, 3, nn.Padding(1))), 2)
	h = nn.ReLU(s, nn.Conv2d(s.At("conv2"), h, 32, 3, nn.Padding(1)))
	h = nn.MaxPool2d(s, nn.ReLU(s, nn.Conv2d(s.At("conv3"), h, 32, 3, nn.Padding(1))), 2)
	return x, s.Keep(ops.SoftMax(nn.Linear(s.At("fc"), nn.Flatten(s, h), digits.Classes), -1))
}

// most is the number of images of a run at most.
const most = 64

// newCache returns the VMs of the network, for runs of three sizes. Requests that wait at the same time are joined into one run.
func newCache(store *cudaops.Store) (*cudaops.Cache, error) {
	return cudaops.NewCache(store, func(rows int) (*cudaops.Sized, error) {
		s := nn.New(G.NewGraph(), nn.In(store), nn.Evaluation())
		x, p := model(s, rows)
		return &cudaops.Sized{Graph: s.Graph(), In: []*G.Node{x}, Out: []*G.Node{p}, Options: []cudaops.Option{cudaops.OnAny(), cudaops.Inference()}}, s.Err()
	}, cudaops.Limit{Rows: most, Wait: time.Millisecond, Sizes: []int{1, 8, most}})
}

// An Answer is what an image is read as.
type Answer struct {
	Digit       int
	Probability float32
}

// read reads images, in as many runs as it takes.
func read(ctx context.Context, cache *cudaops.Cache, pixels []byte) (list []Answer, err error) {
	for part := range slices.Chunk(pixels, most*digits.Pixels) {
		x := make([]float32, len(part))
		for i, ink := range part {
			x[i] = float32(ink) / 16
		}
		out, err := cache.Run(ctx, digits.Set{Images: x}.Planes())
		if err != nil {
			return nil, err
		}
		for p := range slices.Chunk(out[0].Data().([]float32), digits.Classes) {
			list = append(list, Answer{slices.Index(p, slices.Max(p)), slices.Max(p)})
		}
	}
	return list, nil
}

// handler answers requests.
func handler(cache *cudaops.Cache) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /digits", func(w http.ResponseWriter, r *http.Request) {
		pixels, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err == nil && (len(pixels) == 0 || len(pixels)%digits.Pixels != 0 || slices.Max(pixels) > 16) {
			err = fmt.Errorf("got %d bytes, want %d of 0 to 16 for each image", len(pixels), digits.Pixels)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answers, err := read(r.Context(), cache, pixels)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(answers) // a client that is gone needs none
	})
	return mux
}

// serve answers requests until ctx is done, and then those that it has accepted, and closes the cache.
func serve(ctx context.Context, l net.Listener, h http.Handler, cache *cudaops.Cache) error {
	server, done := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}, make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		done <- server.Shutdown(end)
	})
	err := server.Serve(l)
	if !stop() { // Shutdown was called
		err = <-done
	}
	return errors.Join(err, cache.Close())
}

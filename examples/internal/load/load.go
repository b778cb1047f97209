// Package load sends requests to a server from many clients at a time, in tests.
package load

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Client returns a client that keeps as many connections open.
func Client(connections int) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}, Timeout: time.Minute}
}

// Post sends bytes to a server and returns its answer and the status.
func Post(client *http.Client, url string, body []byte) (answer []byte, status int, err error) {
	reply, err := client.Post(url, "application/octet-stream", bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	defer reply.Body.Close()
	answer, err = io.ReadAll(reply.Body)
	return answer, reply.StatusCode, err
}

// ErrStopped is the error of a request to a server that has stopped.
var ErrStopped = errors.New("the server has stopped")

// Run calls request, which sends one request, that many times from clients at a time, and returns how long each took and all together. Each client has
// its own random numbers of the seed. An error of a request ends its client alone; Run returns all but ErrStopped.
func Run(clients int, requests int64, seed uint64, request func(r *rand.Rand) error) (each []time.Duration, all time.Duration, err error) {
	var asked atomic.Int64
	var group sync.WaitGroup
	var mu sync.Mutex // of each and err
	began := time.Now()
	for c := range clients {
		group.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(c)))
			var own []time.Duration
			var failed error
			for failed == nil && asked.Add(1) <= requests {
				start := time.Now()
				failed = request(r)
				own = append(own, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			if each = append(each, own...); failed != ErrStopped {
				err = errors.Join(err, failed)
			}
		})
	}
	group.Wait()
	return each, time.Since(began), err
}

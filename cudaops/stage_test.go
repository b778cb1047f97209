package cudaops

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/hostblas"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// late is a host backend that executes work only when a caller waits for it. It executes copies on the copy stream at once
// if eager is set.
type late struct {
	exec.HostBackend
	eager bool // executes copies on the copy stream at once

	mu     sync.Mutex // of the fields below
	work   []func() error
	done   int // of work
	marks  []int
	copies []func() error
	copied []int // marks among them
}

var _ exec.AsyncCopier = (*late)(nil)

func (l *late) queue(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.work = append(l.work, f)
	return nil
}

// until does the first n pieces of work.
func (l *late) until(n int) error {
	for {
		l.mu.Lock()
		if l.done >= n {
			l.mu.Unlock()
			return nil
		}
		err := l.next()
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// next does the next piece of work, with the lock.
func (l *late) next() error {
	f := l.work[l.done]
	l.work[l.done] = nil
	l.done++
	return f()
}

func (l *late) Bind(p *kernels.Plan, in, out []exec.Span, scratch exec.Span) (func() error, error) {
	f, err := l.HostBackend.Bind(p, in, out, scratch)
	return func() error { return l.queue(f) }, err
}

func (l *late) Upload(to exec.Span, src []byte) error {
	return l.queue(func() error { return l.HostBackend.Upload(to, src) })
}

func (l *late) Download(dst []byte, from exec.Span) error {
	return l.queue(func() error { return l.HostBackend.Download(dst, from) })
}

func (l *late) Stage(n int64) ([]byte, error) { return make([]byte, n), nil }

func (l *late) Sync() error {
	l.mu.Lock()
	n := len(l.work)
	l.mu.Unlock()
	return l.until(n)
}

func (l *late) MakeEvents(n int) error {
	l.marks, l.copied = make([]int, n), make([]int, n)
	return nil
}

func (l *late) RecordWork(i int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks[i] = len(l.work)
	return nil
}

func (l *late) SyncWork(i int) error {
	l.mu.Lock()
	n := l.marks[i]
	l.mu.Unlock()
	return l.until(n)
}

func (l *late) CopyAsync(to exec.Span, src []byte) error {
	if l.eager {
		copy(l.Memory(to), src) // concurrently with other goroutines
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.copies = append(l.copies, func() error { copy(l.Memory(to), src); return nil })
	return nil
}

// copyNow makes the first n copies, with the lock.
func (l *late) copyNow(n int) error {
	for i := range n {
		if f := l.copies[i]; f != nil {
			l.copies[i] = nil
			if err := f(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *late) SyncCopies() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.copyNow(len(l.copies))
}

func (l *late) RecordCopies(i int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.copied[i] = len(l.copies)
	return nil
}

func (l *late) WorkWaitsCopies(i int) error {
	l.mu.Lock()
	n := l.copied[i]
	l.mu.Unlock()
	return l.queue(func() error { return l.copyNow(n) })
}

func (l *late) SyncCopyEvent(i int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.copyNow(l.copied[i])
}

func (l *late) CopiesWaitWork(i int) error {
	if l.eager {
		return l.SyncWork(i)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.marks[i]
	l.copies = append(l.copies, func() error {
		for l.done < n {
			if err := l.next(); err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

// Pinned reports whether memory is of Pinned: only such lies at a multiple of a page here, since values that
// are drawn do not begin where their memory does.
func (l *late) Pinned(m []byte) bool { return uintptr(unsafe.Pointer(&m[0]))%4096 == 0 }

// regression returns a graph with an input large enough for the copy stream, and a smaller one.
func regression(t *testing.T) (g *G.ExprGraph, x, y, loss, w *G.Node) {
	const rows, columns = 256, 80
	node := testutil.Get[*G.Node](t)
	g = G.NewGraph()
	x = G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(rows, columns))
	y = G.NewVector(g, tensor.Float32, G.WithName("y"), G.WithShape(rows))
	w = G.NewVector(g, tensor.Float32, G.WithName("w"), G.WithShape(columns), G.WithValue(draw(rand.New(rand.NewPCG(1, 2)), tensor.Float32, columns)))
	loss = node(G.Mean(node(G.Square(node(G.Sub(node(G.Tanh(node(G.Mul(x, w)))), y))))))
	testutil.Get[G.Nodes](t)(G.Grad(loss, w))
	return g, x, y, loss, w
}

// stagings are machines whose runs may overlap.
func stagings(t *testing.T) map[string]func(g *G.ExprGraph, opts ...Option) (*VM, error) {
	list := map[string]func(g *G.ExprGraph, opts ...Option) (*VM, error){}
	for _, eager := range []bool{false, true} {
		list[fmt.Sprint("late, eager copies ", eager)] = func(g *G.ExprGraph, opts ...Option) (*VM, error) {
			c := &config{host: true} // if it is rebuilt
			for _, o := range opts {
				o(c)
			}
			by, err := hostblas.For(G.WhichBLAS()) // which a rebuilt VM has
			if err != nil {
				return nil, err
			}
			return newVM(g, c, &late{HostBackend: exec.HostBackend{BLAS: by}, eager: eager})
		}
	}
	if _, err := exec.OpenGPU(0); err == nil || testutil.Required("GPU") {
		list["GPU"] = func(g *G.ExprGraph, opts ...Option) (*VM, error) { return NewVM(g, opts...) }
	}
	return list
}

// random returns a value for a node, which does not lie at a multiple of a page.
func random(r *rand.Rand, n *G.Node) G.Value {
	list := make([]float32, n.Shape().TotalSize()+16)[16:]
	for i := range list {
		list[i] = 2*r.Float32() - 1
	}
	return tensor.New(tensor.WithShape(n.Shape()...), tensor.WithBacking(list))
}

// Whatever is staged, and by whom, runs compute with the values that are bound to the nodes.
func TestStage(t *testing.T) {
	for name, open := range stagings(t) {
		for _, every := range []int{1, 3} {
			t.Run(fmt.Sprint(name, ", read every ", every), func(t *testing.T) {
				seed := testutil.Seed(t)
				staged := trainRegression(t, open, seed, every, true)
				plain := trainRegression(t, open, seed, every, false)
				for i, v := range plain {
					if staged[i] != v {
						t.Fatalf("seed %d: number %d is %v, without Stage %v", seed, i, staged[i], v)
					}
				}
			})
		}
	}
}

// trainRegression returns the losses that were read, and the weights at the end.
func trainRegression(t *testing.T, open func(*G.ExprGraph, ...Option) (*VM, error), seed uint64, every int, stage bool) (numbers []float32) {
	g, x, y, loss, w := regression(t)
	vm := testutil.Get[*VM](t)(open(g, Train(G.NewMomentum(G.WithLearnRate(0.05)), w), ReadEvery(every)))
	defer vm.Close()
	if can := testutil.Get[bool](t)(vm.Stage(nil)); !can {
		t.Fatal("the machine stages nothing")
	}
	if m, want := vm.Memory(), 2*4*int64(x.Shape().TotalSize()); m.Inputs < want || m.Inputs > want+want/4 {
		t.Errorf("inputs take %d bytes, want two times x, %d, and little more", m.Inputs, want)
	}
	values, how := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	batch := func() map[*G.Node]G.Value {
		b := map[*G.Node]G.Value{}
		for _, n := range []*G.Node{x, y} {
			v := random(values, n)
			if how.IntN(2) == 0 {
				own := testutil.Get[*tensor.Dense](t)(Pinned(tensor.Float32, n.Shape()...))
				copy(own.Data().([]float32), v.Data().([]float32))
				v = own
			}
			b[n] = v
		}
		return b
	}
	stageIt := func(b map[*G.Node]G.Value) {
		if stage {
			testutil.Get[bool](t)(vm.Stage(b))
		}
	}
	next := batch()
	for range 40 {
		b := next
		for n, v := range b {
			testutil.Do(t, vm.Let(n, v))
		}
		next = batch()
		var other sync.WaitGroup
		switch how.IntN(6) {
		case 0: // nothing is staged
		case 1: // what is not bound then
			stageIt(map[*G.Node]G.Value{x: random(values, x), y: next[y]})
		case 2: // another value of one input follows
			stageIt(map[*G.Node]G.Value{x: next[x], y: next[y]})
			next[y] = random(values, y)
		default:
			other.Go(func() { stageIt(next) })
		}
		testutil.Do(t, vm.RunAll())
		for _, v := range b { // nobody needs them any more
			clear(v.Data().([]float32))
		}
		other.Wait()
		if l := loss.Value(); l != nil {
			numbers = append(numbers, l.Data().(float32))
		}
	}
	testutil.Do(t, vm.Pull())
	return append(numbers, w.Value().Data().([]float32)...)
}

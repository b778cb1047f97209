package world

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/stheno-ml/stheno/internal/fingerprint"
	"github.com/stheno-ml/stheno/kernels"
)

// Peers are the connections of a rank: of rank 0 to all others, of each other to rank 0.
type Peers struct {
	World
	limit time.Duration
	conns []*conn // by rank; only rank 0 has more than conns[0]
	mu    sync.Mutex
	ended error
}

// conn is a connection whose next bytes can be looked at.
type conn struct {
	net.Conn
	in *bufio.Reader
}

func newConn(c net.Conn) *conn { return &conn{c, bufio.NewReader(c)} }

// Read reads what the other rank has sent.
func (c *conn) Read(b []byte) (int, error) { return c.in.Read(b) }

// hello is what a rank sends to join, and what rank 0 answers.
type hello struct {
	Magic      [8]byte
	Size, Rank uint32
}

var magic = [8]byte{'s', 't', 'h', 'e', 'n', 'o', 0, 1}

// Join connects the ranks. Rank 0 listens on the address alone, drops connections that say anything but a hello of a rank that is
// missing, and stops listening when all have joined. limit is the time to wait for all ranks, and later for each collective.
func Join(w World, limit time.Duration) (*Peers, error) {
	p := &Peers{World: w, limit: limit, conns: make([]*conn, w.Size)}
	err, until := error(nil), time.Now().Add(limit)
	if w.Rank == 0 {
		err = p.accept(until)
	} else {
		err = p.dial(until)
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("rank %d of %d, rank 0 at %s: %w", w.Rank, w.Size, w.Address, err)
	}
	return p, nil
}

func (p *Peers) accept(until time.Time) error {
	at, err := net.ResolveTCPAddr("tcp", p.Address)
	for unknown := (*net.DNSError)(nil); errors.As(err, &unknown) && time.Now().Before(until); { // the name of a pod is known some time after its start
		time.Sleep(retry)
		at, err = net.ResolveTCPAddr("tcp", p.Address)
	}
	if err != nil {
		return err
	}
	l, err := net.ListenTCP("tcp", at)
	if err != nil {
		return err
	}
	defer l.Close()
	l.SetDeadline(until)
	for missing := p.Size - 1; missing > 0; {
		c, err := l.Accept()
		if err != nil {
			var absent []int
			for rank, c := range p.conns {
				if rank > 0 && c == nil {
					absent = append(absent, rank)
				}
			}
			return fmt.Errorf("got no hello of the ranks %v within %v: %w", absent, p.limit, err)
		}
		c.SetDeadline(time.Now().Add(time.Second)) // a stranger must not block the ranks
		var h hello
		err = binary.Read(c, binary.LittleEndian, &h)
		if err != nil || h.Magic != magic || int(h.Size) != p.Size || h.Rank == 0 || int(h.Rank) >= p.Size || p.conns[h.Rank] != nil || binary.Write(c, binary.LittleEndian, h) != nil {
			c.Close()
			continue
		}
		p.conns[h.Rank] = newConn(c)
		missing--
	}
	return nil
}

func (p *Peers) dial(until time.Time) error {
	h := hello{magic, uint32(p.Size), uint32(p.Rank)}
	for {
		c, err := net.DialTimeout("tcp", p.Address, time.Until(until))
		if err == nil {
			var answer hello
			c.SetDeadline(until)
			if err = errors.Join(binary.Write(c, binary.LittleEndian, h), binary.Read(c, binary.LittleEndian, &answer)); err == nil && answer == h {
				p.conns[0] = newConn(c)
				return nil
			}
			c.Close()
			err = fmt.Errorf("it does not answer as rank 0 of %d: %w", p.Size, err)
		}
		if time.Now().Add(retry).After(until) {
			return err
		}
		time.Sleep(retry)
	}
}

// retry is the time between attempts to reach rank 0, which may start later.
const retry = 50 * time.Millisecond

// request is what a rank sends to rank 0 before the bytes of its input. All ranks must send the same.
type request struct {
	Kind          kernels.CollectiveKind
	Mean          bool
	Dtype         kernels.Dtype
	Ranks, Root   uint32
	InLen, OutLen uint64
}

// Exchange computes a collective of all ranks on the host: rank 0 receives the inputs and sends the results. A rank that has left, that
// does not answer within the time limit or that asks for another collective makes it fail on all ranks, for good.
func (p *Peers) Exchange(c kernels.Collective, d kernels.Dtype, in, out []byte) error {
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	if ended != nil {
		return ended
	}
	r := request{c.Kind, c.Mean, d, uint32(c.Ranks), uint32(c.Root), uint64(len(in)), uint64(len(out))}
	err := error(nil)
	if p.Rank == 0 {
		err = p.serve(c, d, r, in, out)
	} else {
		err = p.ask(r, in, out)
	}
	if err != nil {
		p.end(err)
	}
	return err
}

// Agree is a call of all ranks. It returns an error that names the first rank whose text differs from that of rank 0.
func (p *Peers) Agree(text string) error {
	own := fingerprint.Of([]byte(text))
	all := make([]byte, p.Size*len(own))
	if err := p.Exchange(kernels.Collective{Kind: kernels.AllGather, Ranks: p.Size}, kernels.Uint8, own[:], all); err != nil {
		return err
	}
	for rank := range p.Size {
		if !bytes.Equal(all[rank*len(own):][:len(own)], all[:len(own)]) {
			return fmt.Errorf("rank %d: got another graph, other options or another kind of device than rank 0, want the same on all ranks", rank)
		}
	}
	return nil
}

// serve is Exchange of rank 0.
func (p *Peers) serve(c kernels.Collective, d kernels.Dtype, want request, in, out []byte) error {
	ins, outs, errs := make([][]byte, p.Size), make([][]byte, p.Size), make([]error, p.Size)
	ins[0], outs[0] = in, out
	each := func(f func(rank int, conn *conn) error) error {
		var wait sync.WaitGroup
		for rank, conn := range p.conns {
			if rank == 0 {
				continue
			}
			wait.Go(func() {
				conn.SetDeadline(time.Now().Add(p.limit))
				if err := f(rank, conn); err != nil {
					errs[rank] = p.of(rank, err)
				}
			})
		}
		wait.Wait()
		return errors.Join(errs...)
	}
	err := each(func(rank int, conn *conn) error {
		var r request
		if err := binary.Read(conn, binary.LittleEndian, &r); err != nil {
			return err
		}
		if r != want {
			return fmt.Errorf("got %+v, want %+v as of rank 0: the ranks must run the same graph", r, want)
		}
		ins[rank], outs[rank] = kernels.Bytes(make([]float64, len(in)/8+1))[:len(in)], kernels.Bytes(make([]float64, len(out)/8+1))[:len(out)]
		_, err := io.ReadFull(conn, ins[rank])
		return err
	})
	if err == nil {
		err = c.Run(d, ins, outs)
	}
	failed := each(func(rank int, conn *conn) error {
		if err != nil {
			return conn.refuse(err)
		}
		reply := net.Buffers{make([]byte, 4), outs[rank]}
		_, err := reply.WriteTo(conn.Conn)
		return err
	})
	if err != nil {
		return err // which the ranks that are left have received
	}
	return failed
}

// ask is Exchange of the other ranks.
func (p *Peers) ask(r request, in, out []byte) error {
	conn := p.conns[0]
	conn.SetDeadline(time.Now().Add(2 * p.limit)) // rank 0 waits for the others first, and says which one is missing
	var head bytes.Buffer
	binary.Write(&head, binary.LittleEndian, r)
	sent := net.Buffers{head.Bytes(), in}
	_, err := sent.WriteTo(conn.Conn)
	if refused := conn.answer(); refused != nil { // also after a write that failed: rank 0 says why it has left
		err = refused
	} else if err == nil {
		_, err = io.ReadFull(conn, out)
	}
	if err != nil {
		return p.of(0, err)
	}
	return nil
}

// of returns an error with the rank that it comes from.
func (p *Peers) of(rank int, err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("no answer within %v: %w", p.limit, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		err = fmt.Errorf("the process has ended or left the others: %w", err)
	}
	return fmt.Errorf("rank %d: %w", rank, err)
}

// refuse sends an error in place of a result.
func (c *conn) refuse(err error) error {
	text := []byte(err.Error())
	text = text[:min(len(text), 1<<16)]
	_, failed := c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...))
	return failed
}

// answer reads the beginning of what rank 0 sends: that the result follows, or an error.
func (c *conn) answer() error {
	var length [4]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n == 0 {
		return nil
	}
	text := make([]byte, min(n, 1<<16))
	if _, err := io.ReadFull(c, text); err != nil {
		return err
	}
	return errors.New(string(text))
}

// Check returns an error that names a rank whose process has ended, or which rank 0 has found, while this rank is in no exchange. Then
// it ends the exchanges of all.
func (p *Peers) Check() error {
	errs := make([]error, p.Size)
	var wait sync.WaitGroup
	for rank, conn := range p.conns {
		if conn == nil {
			continue
		}
		wait.Go(func() {
			conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := conn.in.Peek(1)
			if err == nil && p.Rank > 0 { // rank 0 sends only answers
				conn.SetReadDeadline(time.Now().Add(farewell))
				err = conn.answer()
			}
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				errs[rank] = p.of(rank, err)
			}
		})
	}
	wait.Wait()
	err := errors.Join(errs...)
	if err != nil {
		p.end(err)
	}
	return err
}

// farewell is the time to tell other ranks why this one leaves.
const farewell = time.Second

// end makes all later exchanges fail and closes the connections, so that those of the other ranks fail too. Rank 0 tells the others why.
func (p *Peers) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		return
	}
	p.ended = err
	var wait sync.WaitGroup
	for _, c := range p.conns {
		if c == nil {
			continue
		}
		wait.Go(func() {
			defer c.Close()
			if tcp, ok := c.Conn.(*net.TCPConn); ok && p.Rank == 0 && err != errLeft {
				c.SetDeadline(time.Now().Add(farewell))
				c.refuse(err)
				tcp.CloseWrite()
				io.Copy(io.Discard, c) // closing with unread bytes would discard those that are sent
			}
		})
	}
	wait.Wait()
}

// errLeft ends the exchanges of ranks that close their VMs.
var errLeft = errors.New("the rank has left the others")

// Close leaves the other ranks, whose next exchange fails.
func (p *Peers) Close() { p.end(errLeft) }

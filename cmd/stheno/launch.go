package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// launch starts the processes of a program with several ranks.
type launch struct {
	N       count    `short:"n" required:"" placeholder:"N" help:"Number of processes, each of which is one rank."`
	Program []string `arg:"" help:"The program and its arguments, after --."`
}

func (launch) Help() string {
	return `stheno launch -n 2 -- ./program -its flags

Starts N processes of a program that makes its VM with cudaops.Processes, with the variables RANK, WORLD_SIZE,
LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT that torchrun sets. Interrupts and SIGTERM go to all of them. When one fails, it ends
the others and prints the last lines that the failing one has written to standard error.`
}

// graceTime is the time that processes have to end themselves after another has failed; a test shortens it.
var graceTime = 5 * time.Second

// Run starts the processes and waits for their end.
func (l launch) Run(c *console) error {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	type end struct {
		rank int
		err  error
	}
	var ranks []*exec.Cmd
	tails, ended := make([]tail, l.N), make(chan end)
	out, errs := &lockedWriter{w: c.out}, &lockedWriter{w: c.err}
	send := func(s os.Signal) {
		for _, p := range ranks {
			p.Process.Signal(s) // fails if the process has ended
		}
	}
	for r := range int(l.N) {
		p := exec.Command(l.Program[0], l.Program[1:]...)
		p.Stdout, p.Stderr = out, io.MultiWriter(errs, &tails[r])
		p.Env = append(os.Environ(), fmt.Sprint("RANK=", r), fmt.Sprint("LOCAL_RANK=", r), fmt.Sprint("WORLD_SIZE=", l.N), fmt.Sprint("LOCAL_WORLD_SIZE=", l.N),
			"MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port))
		if err = p.Start(); err != nil {
			err = fmt.Errorf("rank %d: %w", r, err)
			send(os.Kill)
			break
		}
		ranks = append(ranks, p)
		go func() { ended <- end{r, p.Wait()} }()
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	var late <-chan time.Time
	for left := len(ranks); left > 0; {
		select {
		case s := <-signals:
			send(s)
		case <-late:
			send(os.Kill)
		case e := <-ended:
			if left--; e.err == nil || err != nil {
				continue
			}
			err = fmt.Errorf("rank %d: %w; its last lines:\n%s", e.rank, e.err, tails[e.rank].String())
			send(syscall.SIGTERM)
			late = time.After(graceTime)
		}
	}
	return err
}

// lockedWriter is a writer for several processes.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// tail keeps the end of what is written to it.
type tail struct{ end []byte }

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10 // bytes
	if t.end = append(t.end, p...); len(t.end) > most {
		t.end = bytes.Clone(t.end[len(t.end)-most:])
	}
	return len(p), nil
}

// String returns the last lines, indented.
func (t *tail) String() string {
	lines := strings.Split(strings.TrimRight(string(t.end), "\n"), "\n")
	return "\t" + strings.Join(lines[max(len(lines)-10, 0):], "\n\t")
}

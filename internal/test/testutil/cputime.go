//go:build unix

package testutil

import (
	"syscall"
	"testing"
	"time"
)

// CPUTime returns the time that the process has computed for so far, which other processes hardly change.
func CPUTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	Do(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

package main

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// Processes get the variables of their ranks and their own flags; one that fails ends the others, and its last lines are in the error.
func TestLaunch(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	start := func(script string) (status int, out, errs string) {
		var o, e bytes.Buffer
		status = run([]string{"launch", "-n", "3", "--", sh, "-c", script, "-x"}, &o, &e)
		return status, o.String(), e.String()
	}
	status, out, errs := start(`echo $0 $RANK $LOCAL_RANK of $WORLD_SIZE $LOCAL_WORLD_SIZE at $MASTER_ADDR ${MASTER_PORT:+there}`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)
	want := []string{"-x 0 0 of 3 3 at 127.0.0.1 there", "-x 1 1 of 3 3 at 127.0.0.1 there", "-x 2 2 of 3 3 at 127.0.0.1 there"}
	if status != 0 || !slices.Equal(lines, want) {
		t.Errorf("got status %d, %q, %s, want %q", status, lines, errs, want)
	}
	began := time.Now()
	status, _, errs = start(`if [ $RANK = 1 ]; then for i in $(seq 1 99); do echo line $i >&2; done; exit 7; fi; exec sleep 60`)
	if status != failure || !strings.Contains(errs, "stheno launch: rank 1: exit status 7; its last lines:\n\tline 90\n") || time.Since(began) > 30*time.Second {
		t.Errorf("a rank fails: got status %d after %v, %s", status, time.Since(began), errs)
	}
	status = run([]string{"launch", "-n", "2", "--", "/no/such/program"}, new(bytes.Buffer), new(bytes.Buffer))
	if status != failure {
		t.Errorf("no program: got status %d, want %d", status, failure)
	}
}

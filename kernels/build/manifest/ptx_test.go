package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// PTX comes back as it was; text that differences do not preserve is an error.
func TestPTXDifferences(t *testing.T) {
	r := testutil.Random(t)
	pieces := []string{"%", "%r", "%rd", "%p", "%ntid.x", "%clock64", ", ", ";\n", "-", "1", "ld.param.u64 ", "{%f", "<12>", "%r7-3", "%SP"}
	for range 1000 {
		var b strings.Builder
		for range r.IntN(40) {
			b.WriteString(pieces[r.IntN(len(pieces))])
			if r.IntN(2) == 0 {
				fmt.Fprintf(&b, "%d ", r.IntN(300))
			}
		}
		differences, err := ptxDifferences([]byte(b.String()))
		if err != nil {
			continue // a sign or leading zeros after a register's kind
		}
		if got := string(ptxNumbers(differences)); got != b.String() {
			t.Errorf("got %q, want %q", got, b.String())
		}
	}
	if got, err := ptxDifferences([]byte("add %r10, %r12, %rd3; st %r12; %r11-2")); err != nil || string(got) != "add %r10, %r2, %rd3; st %r0; %r-1-2" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := ptxDifferences([]byte("%r007")); err == nil {
		t.Error("leading zeros are lost without an error")
	}
}

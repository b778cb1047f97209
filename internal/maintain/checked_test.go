package maintain

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// The checks of ops accept what the host computes, and notice one wrong element.
func TestChecks(t *testing.T) {
	dev, right, noticed := kernels.HostDevice(), 0, 0
	for _, c := range Checks() {
		for _, o := range c.(Checked).cases() {
			if o.Case.Elements() > 1<<12 {
				continue
			}
			run := func(p *kernels.Plan, inputs [][]byte, out []byte) error { return p.Run(inputs, out, nil) }
			if err := o.compare(dev, run); err != nil {
				t.Errorf("%v: %v", o.Key(), err)
			}
			right++
			wrong := func(p *kernels.Plan, inputs [][]byte, out []byte) error {
				err := p.Run(inputs, out, nil)
				out[len(out)-1] ^= 0x40 // of the exponent of a number
				return err
			}
			if err := o.compare(dev, wrong); err != nil {
				noticed++
			}
		}
	}
	if right < 200 || noticed < right*9/10 {
		t.Errorf("%d cases are right, of which %d are wrong with a wrong element, want at least 200 and nearly all", right, noticed)
	}
}

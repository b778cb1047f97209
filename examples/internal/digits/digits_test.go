package digits

import "testing"

func TestDigits(t *testing.T) {
	d, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if d.Len() != 1797 || len(d.Images) != 1797*Pixels {
		t.Fatalf("%d labels and %d pixels, want 1797 and %d", d.Len(), len(d.Images), 1797*Pixels)
	}
	seen := [Classes]int{}
	for _, label := range d.Labels {
		seen[label]++
	}
	for digit, n := range seen {
		if n < 170 { // the set is balanced
			t.Errorf("%d images of %d, want at least 170", n, digit)
		}
	}
	for i, v := range d.Images {
		if v < 0 || v > 1 {
			t.Fatalf("pixel %d is %v, want 0 to 1", i, v)
		}
	}
}

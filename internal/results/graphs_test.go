package results

import (
	"strings"
	"testing"
)

func TestUpdateGraphs(t *testing.T) {
	softmax, mlp, norm := Key{"softmax", "16x8", "f32"}, Key{"MLP", "batch 4", "f32"}, Key{"norm", "1x1", "f32"}
	file := &File{
		GPU: "NVIDIA T1", Run: Run{Driver: "1.2", CUDA: "12.0", Date: "2026-01-02", Copy: 1000},
		Rows: []Row{
			{Key: softmax, Bytes: 9e8, Micros: 1000, Graph: &Graph{Run: 2500, Launches: 1}, Run: &Run{Date: "2026-02-03", Driver: "1.3", Copy: 2000}},
			{Key: mlp, Bytes: 100, Flops: 1e9, Micros: 50, Graph: &Graph{Run: 20000, Launches: 12, Host: 3}},
		},
		Peers: []Peer{{softmax, "eager", 900, nil}, {softmax, "compiled", 1500, nil}, {mlp, "compiled", 40, nil}},
	}
	const page = "a\n<!-- graphs:begin -->\nold\n<!-- graphs:end -->\nb\n"
	got, err := UpdateGraphs(page, []*File{file}, []Key{norm, softmax})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"a\n<!-- graphs:begin -->\n**NVIDIA T1**, driver 1.2 (CUDA 12.0), 2026-01-02, float32. Device copy: 1000 GB/s.\n\n",
		"| Graph | Size | Launches | Device | Rate | Of copy | eager | compiled | Of the fastest | Run |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|\n",
		"| norm | 1x1 | not measured | | | |  |  | | |\n",
		"| softmax | 16x8 | 1 launch | 1.00 ms | 900 GB/s | 45 % | 900 us | 1.50 ms | 90 % | 2.50 ms |\n",
		"| MLP | batch 4 | 12 launches, 3 on the host | 50.0 us |  |  |  | 40.0 us |  | 20.0 ms |\n",
		"\nMeasured on 2026-02-03, driver 1.3: `softmax` 16x8 float32.\n<!-- graphs:end -->\nb\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	steps := strings.ReplaceAll(page, "graphs:", "steps:")
	if got, err := UpdateSteps(steps, []*File{file}, []Key{softmax}); err != nil || !strings.Contains(got, "| Step | Size | Launches |") || !strings.Contains(got, "| softmax | 16x8 | 1 launch |") {
		t.Errorf("training steps: %q, %v", got, err)
	}
	got, err = UpdateReadmeSteps(steps, []*File{file}, []Key{norm, softmax})
	for _, want := range []string{
		"| Training step | Size | Time | `RunAll` | Fastest peer | Speed of peer's |\n", "| norm | 1x1 | not measured | | | |\n", "| softmax | 16x8 | 1.00 ms | 2.50 ms | eager, 900 us | 90 % |\n",
	} {
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s%v", want, got, err)
		}
	}
	reduced := Key{"softmax, BF16", "16x8", "f32"}
	file.Rows = append(file.Rows, Row{Key: reduced, Micros: 20, Graph: &Graph{Launches: 1, Off: 0.0123}})
	got, err = UpdatePrecision(strings.ReplaceAll(page, "graphs:", "precision:"), []*File{file}, []Key{norm, softmax, reduced})
	if want := "| softmax | 16x8 | 1.00 ms | not measured | 20.0 us |  |  | 1.2e-02 |\n<!-- precision:end"; err != nil || !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s%v", want, got, err)
	}
	parts := strings.ReplaceAll(page, "graphs:", "parts:")
	if got, err := UpdateParts(parts, []*File{file}, []Key{norm, softmax}); err != nil || !strings.Contains(got, "begin -->\nNot measured yet.\n<!--") {
		t.Errorf("without parts: %q, %v", got, err)
	}
	file.Rows[0].Graph.Parts = []Part{{"kernel product", []int{4, 2}, 2.5, 0.25}, {"rows f32: " + strings.Repeat("x|", 40), []int{}, 1, 0.5}}
	got, err = UpdateParts(parts, []*File{file}, []Key{norm, softmax})
	for _, want := range []string{
		"**NVIDIA T1**, softmax, 16x8, 2026-02-03, float32: 1.00 ms.\n", "| `product` | 4 2 | 2.50 us | 0.25 us |\n", "...` |  | 1.00 us | 0.50 us |\n| all | | 3.50 us | 0.75 us |\n<!--",
	} {
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s%v", want, got, err)
		}
	}
	if got, err := UpdateGraphs(page, nil, nil); err != nil || !strings.Contains(got, "begin -->\nNot measured yet.\n<!--") {
		t.Errorf("without files: %q, %v", got, err)
	}
	if _, err := UpdateGraphs("no markers", nil, nil); err == nil {
		t.Error("no error for a page without markers")
	}
}

package records

import (
	"slices"
	"strings"
	"testing"
)

type values = map[string]float64

var sample = &File{
	Set: Ops, GPU: "NVIDIA T1 (80GB)", Runs: []Run{{Driver: "1.2", CUDA: "12.0", Date: "2026-01-02", Copy: 1000}, {Driver: "1.3", Date: "2026-02-03", Copy: 1800}},
	Records: []Record{
		{Kind: Time, Key: Key{"Sum", "all of 8", "f32"}, Us: 1000, Values: values{"bytes": 900e6, "flops": 225e6}, Kernels: Digests{"sum": "a", "dot": "b"}},
		{Kind: Time, Key: Key{"MatMul", "8 | 8", "f64"}, Us: 50, Values: values{"bytes": 1e6, "flops": 1e9}},
		{Kind: Time, Key: Key{"Sum", "all of 9", "f32"}, Us: 1, Values: values{"bytes": 1, "version": 2}},
		{Kind: Time, Key: Key{"Sum", "rows", "f32"}, Us: 1000, Values: values{"bytes": 900e6}, Run: 1},
		{Kind: Peer, Key: Key{"Sum", "all of 8", "f32"}, By: "slow", Us: 2000},
		{Kind: Peer, Key: Key{"Sum", "all of 8", "f32"}, By: "quick", Us: 950},
		{Kind: Peer, Key: Key{"Sum", "nothing", "f32"}, By: "lost", Us: 1},
		{Kind: Suite, Key: Key{Op: "ops"}, Result: "PASS"}, {Kind: Suite, Key: Key{Op: "Sum"}, By: "racecheck", Result: "FAIL"}, {Kind: Suite, Key: Key{Op: "Sum"}, By: "initcheck", Result: "CUT"},
	},
}

// has reports the texts that a table lacks.
func has(t *testing.T, got string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestSpeed(t *testing.T) {
	got := Speed(sample, []Key{{"Add", "8", "f32"}, {"Sum", "all of 8", "f32"}, {"Sum", "of none", "f64"}})
	has(t, got,
		"**NVIDIA T1 (80GB)**, driver 1.2 (CUDA 12.0), 2026-01-02. Device copy: 1000 GB/s.",
		"|---|---|---|--:|--:|--:|---|--:|\n| `Add` | 8 | float32 | not measured |  |  |  |  |\n| `Sum` | all of 8 | ",
		"| `Sum` | of none | float64 | not measured |  |  |  |  |\n| `Sum` | rows | float32 | 1.00 ms | 900 GB/s | 50 % |",
		"\nMeasured on 2026-02-03, driver 1.3: `Sum` rows float32.\n",
		"| `Sum` | all of 8 | float32 | 1.00 ms | 900 GB/s | 90 % | quick, 950 us | 95 % |\n",
		`| `+"`MatMul`"+` | 8 \| 8 | float64 | 50.0 us | 20.0 TFLOP/s |  |  |  |`+"\n",
		"1 of 3 suites pass; 1 ran out of time with no failure until then; failed: racecheck Sum.")
	if strings.Contains(got, "all of 9") {
		t.Errorf("a case of a numbered version is in\n%s", got)
	}
}

func TestGraphTables(t *testing.T) {
	softmax, mlp, norm, reduced := Key{"softmax", "16x8", "f32"}, Key{"MLP", "batch 4", "f32"}, Key{"norm", "1x1", "f32"}, Key{"softmax, BF16", "16x8", "f32"}
	file := &File{
		GPU: "NVIDIA T1", Runs: []Run{{Driver: "1.2", CUDA: "12.0", Date: "2026-01-02", Copy: 1000}, {Date: "2026-02-03", Driver: "1.3", Copy: 2000}},
		Records: []Record{
			{Kind: Time, Key: softmax, Us: 1000, Values: values{"bytes": 9e8, "run": 2500, "launches": 1}, Run: 1},
			{Kind: Time, Key: mlp, Us: 50, Values: values{"bytes": 100, "flops": 1e9, "run": 20000, "launches": 12, "host": 3}},
			{Kind: Peer, Key: softmax, By: "eager", Us: 900}, {Kind: Peer, Key: softmax, By: "compiled", Us: 1500}, {Kind: Peer, Key: mlp, By: "compiled", Us: 40},
		},
	}
	got := GraphTimes(file, []Key{norm, softmax})
	has(t, got,
		"**NVIDIA T1**, driver 1.2 (CUDA 12.0), 2026-01-02, float32. Device copy: 1000 GB/s.\n\n",
		"| Graph | Size | Launches | Device | Rate | Of copy | eager | compiled | Of the fastest | Run |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|\n",
		"| norm | 1x1 | not measured |  |  |  |  |  |  |  |\n",
		"| softmax | 16x8 | 1 launch | 1.00 ms | 900 GB/s | 45 % | 900 us | 1.50 ms | 90 % | 2.50 ms |\n",
		"| MLP | batch 4 | 12 launches, 3 on the host | 50.0 us |  |  |  | 40.0 us |  | 20.0 ms |\n",
		"\nMeasured on 2026-02-03, driver 1.3: `softmax` 16x8 float32.\n")
	has(t, StepTimes(file, []Key{softmax}), "| Step | Size | Launches |", "| softmax | 16x8 | 1 launch |")
	step := Key{"MLP, SGD", "batch 4", "f32"}
	steps := &File{GPU: file.GPU, Runs: file.Runs, Records: []Record{{Kind: Time, Key: step, Us: 1000}, {Kind: Peer, Key: step, By: "eager", Us: 900}}}
	got = StepSpeed(steps, []Key{{"norm, SGD", "1x1", "f32"}, step, {"MLP, SGD, TF32", "batch 4", "f32"}})
	has(t, got, "| Training step | Size | Time | Fastest peer | Speed of peer's |\n", "| norm, SGD | 1x1 | not measured |  |  |\n", "| MLP, SGD | batch 4 | 1.00 ms | eager, 900 us | 90 % |\n")
	if strings.Contains(got, "TF32") {
		t.Errorf("a step in TF32 is in the short table:\n%s", got)
	}
	if got := Parts(file, []Key{norm, softmax}); got != "" {
		t.Errorf("without parts: %q", got)
	}
	file.Records = append(file.Records, Record{Kind: Time, Key: reduced, Us: 20, Values: values{"launches": 1, "off": 0.0123}},
		Record{Kind: Part, Key: softmax, By: "kernel product", Us: 2.5, Values: values{"least": 0.25}, Note: "4 2"},
		Record{Kind: Part, Key: softmax, By: "rows f32: " + strings.Repeat("x|", 40), Us: 1, Values: values{"least": 0.5}})
	has(t, PrecisionTimes(file, []Key{norm, softmax, reduced}), "| softmax | 16x8 | 1.00 ms | not measured | 20.0 us |  |  | 1.2e-02 |\n")
	has(t, Parts(file, []Key{norm, softmax}),
		"**NVIDIA T1**, softmax, 16x8, 2026-02-03, float32: 1.00 ms.\n", "| `product` | 4 2 | 2.50 us | 0.25 us |\n", "...` |  | 1.00 us | 0.50 us |\n| all | | 3.50 us | 0.75 us |\n")
}

func TestErrors(t *testing.T) {
	key := Key{"MatMul", "near 1, or 0, 2 x 3 x 4", "f32"}
	special := func(name string, us float64) Record {
		return Record{Kind: Time, Key: Key{SpecialTimes, name, "f32"}, Us: us}
	}
	file := &File{GPU: "G", Runs: []Run{{Driver: "1", CUDA: "2", Date: "2026-01-02"}}, Records: []Record{
		{Kind: Error, Key: key, Values: values{"largest": 1.234, "mean": 0.5}}, {Kind: Error, Key: key, By: FMA, Values: values{"wrong": 3}}, {Kind: Error, Key: key, By: "cuBLAS 1", Values: values{"largest": 2, "mean": 1, "wrong": 4}},
		special("8, usual", 2), special("8, NaN", 3), special("16, usual", 10), special("16, NaN", 10),
	}}
	const want = `**G**, driver 1 (CUDA 2), 2026-01-02; beside cuBLAS 1.

| Operands | m x k x n | Stheno | by FMA alone | cuBLAS |
|---|---|--:|--:|--:|
| near 1, or 0 | 2 x 3 x 4 | 1.23, 0.5 | 3 wrong | 2, 1, 4 wrong |

| Elements of A, beside usual | 8 | 16 |
|---|--:|--:|
| NaN | 1.50 x | 1.00 x |
`
	if got := Errors(file, nil); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// A table has the date of most of its cases, and names the others'.
func TestRuns(t *testing.T) {
	in := func(name string, run int) Record {
		return Record{Kind: Time, Key: Key{"Sum", name, "f32"}, Us: 1, Run: run}
	}
	f := &File{Runs: []Run{{Driver: "1", Date: "2026-01-02"}, {Driver: "2", Date: "2026-01-03", Copy: 7}, {Driver: "2", Date: "2026-01-03"}}, Records: []Record{in("a", 0), in("b", 1), in("c", 2)}}
	if usual, others := f.runs(f.keys(nil)); usual.Date != "2026-01-03" || others != "\nMeasured on 2026-01-02, driver 1: `Sum` a float32.\n" {
		t.Errorf("one case of the first run, two of another: got %v and %q", usual, others)
	}
	f.Records = append(f.Records, in("d", 0))
	if usual, others := f.runs(f.keys(nil)); usual.Date != "2026-01-02" || others != "\nMeasured on 2026-01-03, driver 2: `Sum` b float32, `Sum` c float32.\n" {
		t.Errorf("two cases of each: got %v and %q", usual, others)
	}
}

// Tables say which kernels have changed since their cases ran, where the file is compared with a tree.
func TestSince(t *testing.T) {
	key := Key{"Sum", "2^20", "f32"}
	f := &File{Runs: []Run{{}}, Records: []Record{{Kind: Time, Key: key, Kernels: Digests{"sum": "a", "dot": "b"}}, {Kind: Error, Key: Key{"Add", "2, 3", "f32"}, Kernels: Digests{"sum": "a"}},
		{Kind: Suite, Key: Key{Op: "Sum"}, Kernels: Digests{"gone": "x"}}}}
	for name, test := range map[string]struct {
		tree Digests
		want string
	}{
		"not compared":      {nil, ""},
		"the same kernels":  {Digests{"sum": "a", "dot": "b", "add": "c"}, ""},
		"another of them":   {Digests{"sum": "a", "dot": "c"}, "Since then these kernels have changed: `dot`.\n\n"},
		"all, and one gone": {Digests{"sum": "b"}, "Since then these kernels have changed: `dot`, `sum`.\n\n"},
	} {
		if f.Tree = test.tree; f.Since() != test.want {
			t.Errorf("%s: got %q, want %q", name, f.Since(), test.want)
		}
		for table, of := range map[string]func(*File, []Key) string{"steps": StepSpeed, "graphs": GraphTimes, "precision": PrecisionTimes, "errors": Errors, "drawn": DrawnCases} {
			text := of(f, []Key{key})
			if got := strings.Contains(text, "Since then"); got != (test.want != "") || !strings.Contains(text, test.want) {
				t.Errorf("%s: the table of %s says\n%s\nwant %q in it", name, table, text, test.want)
			}
		}
	}
}

func TestSplice(t *testing.T) {
	const text = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n"
	got, err := Splice(text, "x", "new\n")
	if want := strings.Replace(text, "old", "new", 1); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, bad := range []string{"", "<!-- x:begin -->\n", "<!-- x:end -->\n<!-- x:begin -->\n"} {
		if got, err := Splice(bad, "x", ""); err == nil {
			t.Errorf("Splice in %q gives %q, want an error", bad, got)
		}
	}
}

// The page of drawn cases has the ratios by op, the cases that miss a goal and no others, and the plot.
func TestDrawnCases(t *testing.T) {
	at := func(op, name string, us, bytes, flops float64) Record {
		return Record{Kind: Time, Key: Key{op, name, "f32"}, Us: us, Values: values{"bytes": bytes, "flops": flops}}
	}
	by := func(r Record, us float64) Record { return Record{Kind: Peer, Key: r.Key, By: "x", Us: us} }
	good, bad, worst := at("MatMul", "a", 5, 100, 1e6), at("Sum", "b", 10, 100, 1), at("MatMul", "c", 5, 100, 1e6)
	f := &File{GPU: "Some GPU", Runs: []Run{{Copy: 4000, Seed: 7}}, Records: []Record{good, by(good, 10), bad, by(bad, 5), worst, by(worst, 2), by(worst, 3), at("Sum", "a|b", 100, 100<<20, 1), at("Dot", "alone", 1, 1, 0)}}
	has(t, DrawnCases(f, nil), ": 5 cases, seed 7, of which 3 have a time in another library. Device copy: 4000 GB/s.\n\n| op |",
		"\n| MatMul | 2 | 0.89 | 0.40 |", "| 1 |\n| Sum | 1 |", "\n| all | 3 |", "| Sum/a\\|b/f32 | 100 us | 26 % |\n", "](drawn-some-gpu.svg)\n",
		"\n| below 0.8 | Stheno | the other | ratio | the other is |\n|---|--:|--:|--:|--:|\n| MatMul/c/f32 | 5.00 us | 2.00 us | 0.40 | x |\n| Sum/b/f32 | 10.0 us | 5.00 us | 0.50 | x |\n\n")
	if points := f.Points(); len(points) != 3 || points[0].Here.Case != "c" || points[2].Ratio() != 2 {
		t.Errorf("got %v, want the worst first", points)
	}
	f.Records = f.Records[:2]
	if got := DrawnCases(f, nil); strings.Contains(got, "below 0.8 | S") || strings.Contains(got, "64 MB") {
		t.Errorf("a case that misses nothing is named:\n%s", got)
	}
}

// Figures of a hundred ratios from 1 to 100.
func TestRatios(t *testing.T) {
	var points []Point
	for i := range 100 {
		points = append(points, Point{Record{Key: Key{Op: "Sum"}, Us: 1}, Record{Us: float64(1 + i)}})
	}
	lines := Ratios(points)
	if want := []string{"Sum", "100", "37.99", "1.00", "5.00", "25.00", "50.00", "75.00", "95.00", "100.00", "0"}; len(lines) != 2 || !slices.Equal(lines[1], want) {
		t.Errorf("got %q, want %q", lines, want)
	}
	if lines := Ratios(nil); len(lines) != 1 {
		t.Errorf("of none: got %q, want the header", lines)
	}
}

// A table of losses has a column for each way to compute them, and the largest distance from float32.
func TestLossCurves(t *testing.T) {
	loss := func(by, steps, in string, mean float64) Record {
		return Record{Kind: Loss, By: by, Key: Key{"GPT", steps, in}, Values: map[string]float64{"loss": mean}}
	}
	f := &File{GPU: "A", Runs: []Run{{}}, Records: []Record{loss("", "1 to 20", LossesIn, 4), loss("", "21 to 40", LossesIn, 2), loss("", "1 to 20", "BF16", 4.01), loss("", "21 to 40", "BF16", 1.99),
		loss("PyTorch 2", "1 to 20", LossesIn, 4), loss("PyTorch 2", "21 to 40", LossesIn, 2.000002)}}
	_, got, _ := strings.Cut(LossCurves(f, nil), "\n\n")
	want := `| Steps | float32 | BF16 | PyTorch 2, float32 |
|---|--:|--:|--:|
| 1 to 20 | 4.00000 | 4.01000 | 4.00000 |
| 21 to 40 | 2.00000 | 1.99000 | 2.00000 |
| farthest from float32 | 0.000 % | 0.500 % | 0.000 % |
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := LossCurves(&File{Runs: []Run{{}}}, nil); got != "" {
		t.Errorf("got %q of no losses", got)
	}
}

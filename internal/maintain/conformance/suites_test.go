package conformance

import (
	"path"
	"path/filepath"
	"strings"
)

// A suite is a program that runs on Gorgonia's tape machine, or tests.
type suite struct {
	name string
	dir  string // of its package in the tree, which is where it runs
	test string // the name of the package of its tests, "" for a program
	args []string
	env  []string
	// For a run in a packed folder: the files that it reads, the sizes in bytes of large files that random numbers replace, and arguments
	// that skip the tests that need other files.
	files   []string
	weights map[string]int
	without []string
	// timed is set if runs of its machines that train are timed.
	timed bool
}

// suites are the suites in the order in which they run.
var suites = []suite{
	{name: "gorgonia", dir: "gorgonia", test: "gorgonia_test", args: []string{"-test.short"}, without: []string{"-test.skip=TestYolo"}},
	{name: "gorgonia, nn", dir: "gorgonia/ops/nn", test: "nnops_test"},
	{name: "onnx operators", dir: "onnx-go/backend/x/gorgonnx", test: "gorgonnx_test"},
	{name: "linear regression, 286", dir: "gorgonia/examples/286"},
	{name: "iris", dir: "gorgonia/examples/iris", files: []string{"iris.csv"}, timed: true},
	{name: "logistic regression", dir: "gorgonia/examples/logisticregression", timed: true},
	{name: "convnet", dir: "gorgonia/examples/convnet", args: []string{"-batchsize", "5", "-epochs", "1"}},
	{name: "convnet without dropout", dir: "gorgonia/examples/convnet", args: []string{"-batchsize", "5", "-epochs", "1"},
		env: []string{"STHENO_CONFORMANCE_DROPOUT=none"}},
	{name: "stacked autoencoder", dir: "gorgonia/examples/stacked_autoencoder",
		args: []string{"-bs", "5", "-pt", "2", "-ft", "1"}, timed: true},
	{name: "charRNN", dir: "gorgonia/examples/charRNN", timed: true},
	{name: "tiny-yolo v2", dir: "gorgonia/examples/tiny-yolo-v2-coco", files: []string{"data/dog_416x416.jpg"},
		weights: map[string]int{"model/yolov2-tiny.weights": 44948600}},
	{name: "tiny-yolo v3", dir: "gorgonia/examples/tiny-yolo-v3-coco", files: []string{"data/dog_416x416.jpg", "data/yolov3-tiny.cfg"},
		weights: map[string]int{"data/yolov3-tiny.weights": 35434956}},
}

// modes are how a suite is run: on the tape machine, on Stheno in its place, and on the
// tape machine with Stheno beside it.
var modes = []string{"tape", "stheno", "compare"}

// timedModes are how a suite is run once more where its runs are timed: on the tape machine,
// and on Stheno, which keeps the values that a user of the tape machine finds.
var timedModes = []string{"time-tape", "time-stheno"}

// onHost are the ops, by the names in the log, that may run on the host for want of a kernel:
// those that docs/gorgonia-ops.md lists, and those of tests and of onnx-go.
var onHost = []string{"CTCLoss", "ctcLossDiff", "Sparsemax", "SparsemaxDiff", "YOLO", "FaultyOp", "I", "XXX", "XXXDiff", "batchnorm", "gemm", "leakyRELU"}

// apart are the tests that fail on Stheno alone, and why they cannot do otherwise; a name
// that ends in a slash is all subtests of a test.
var apart = map[string]string{
	"TestUse":                          "wants Sgemm of the BLAS given to gorgonia.Use: a matrix with one column is multiplied by its Sdot on the host, and by no BLAS on a GPU",
	"Test_tapeMachinePointerWatchFail": "wants an error of the tape machine's watch for ops that return their input's memory: on Stheno no two nodes share memory",
	"TestDropoutAll/":                  "wants the elements that math/rand drops, and the gradient divided by the probability of being dropped",
	"TestBatchNormAll/":                lastBits,
	"TestBatchNormStacked/":            lastBits,
	"TestByIndicesOpFull/":             "wants an index beyond the axis to be taken for the first: here it is an error that names it",
}

const lastBits = "wants the rounding errors of the tape machine's sums, or the steps that Adam makes of them: the exact gradients are 0"

// otherOps are ops whose values differ, by the beginning of their names, and why.
var otherOps = map[string]string{
	"dropoutDiffOp": "Gorgonia's derivative of Dropout divides by the probability of being dropped, and is 0 where that is 0",
	"batchnormdiff": "Gorgonia's derivative of a BatchNorm that evaluates takes the moments of the last training run, or none",
}

// excused returns why a test may fail on Stheno alone, "" if it may not.
func excused(test string) string {
	if why := apart[test]; why != "" {
		return why
	}
	name, _, _ := strings.Cut(test, "/")
	return apart[name+"/"]
}

// folder returns the folder of a suite's package in a tree.
func (s suite) folder(tree string) string { return filepath.Join(tree, filepath.FromSlash(s.dir)) }

// binary returns where a suite is built.
func (s suite) binary(tree string) string { return filepath.Join(tree, "bin", path.Base(s.dir)) }

// log returns the path of a file that a run of the suite leaves: with .log, its output;
// with .jsonl, the hook's records; with .exit, its exit status.
func (s suite) log(dir, mode, kind string) string {
	return filepath.Join(dir, "log", strings.NewReplacer(" ", "-", ",", "-").Replace(s.name)+"-"+mode+"."+kind)
}

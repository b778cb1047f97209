package maintain

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

// unmeasured are GPUs without records, by the vendor's data: the peak of their tensor cores is that of dense 16-bit operands with sums in float32, in multiply-adds a second,
// twice that of TF32. That of the B200 is not the peak of mma.sync, which the kernels there use.
var unmeasured = []struct {
	kernels.Device
	tensor float64
	source string
}{
	{kernels.Device{Name: "A100 40 GB", Major: 8, SMs: 108, SharedOptin: 163 << 10, L2: 40 << 20, Bandwidth: 1.555e12, FMAs: 19.5e12 / 2, Tensor: 312e12 / 2}, 312e12 / 2,
		"[A100 architecture](https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf)"},
	{kernels.Device{Name: "L40S", Major: 8, Minor: 9, SMs: 142, SharedOptin: 99 << 10, L2: 96 << 20, Bandwidth: 864e9, FMAs: 91.6e12 / 2, Tensor: 362e12 / 2}, 362e12 / 2,
		"[L40S data sheet](https://resources.nvidia.com/en-us-l40s/l40s-datasheet-28413)"},
	{kernels.Device{Name: "RTX 4090", Major: 8, Minor: 9, SMs: 128, SharedOptin: 99 << 10, L2: 72 << 20, Bandwidth: 1008e9, FMAs: 82.6e12 / 2, Tensor: 165.2e12 / 2}, 165.2e12 / 2,
		"[Ada architecture](https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf)"},
	{kernels.Device{Name: "B200", Major: 10, SMs: 148, SharedOptin: 227 << 10, L2: 126 << 20, Bandwidth: 8e12, FMAs: 80e12 / 2}, 2250e12 / 2,
		"[Blackwell architecture](https://resources.nvidia.com/en-us-blackwell-architecture)"},
}

// predictor predicts the time of its plan on a device in us, 0 without a model of the plan's kernel.
type predictor interface {
	Plan(dev kernels.Device) (*kernels.Plan, error)
	Predicted(dev kernels.Device) float64
}

// sum is a sum of float32, outer x r x inner over r.
type sum struct{ outer, r, inner int64 }

func (s sum) String() string {
	if s.outer > 1 {
		return fmt.Sprintf("%d x %d over 1", s.outer, s.r)
	}
	return fmt.Sprintf("%d x %d over 0", s.r, s.inner)
}

func (s sum) Plan(dev kernels.Device) (*kernels.Plan, error) {
	return reduce.Sum(dev, kernels.Float32, []int{int(s.outer), int(s.r), int(s.inner)}, []int{1}, false), nil
}

func (s sum) Predicted(dev kernels.Device) float64 {
	_, us, _ := reduce.Candidates(dev, kernels.Float32, s.outer, s.r, s.inner)
	return slices.Min(us) // the plan has the candidate of the least predicted time
}

// predictedCase is a row of a table.
type predictedCase struct {
	name string
	predictor
}

// predictedProducts returns products of FMA units.
func predictedProducts() (cases []predictedCase) {
	for _, s := range []struct {
		m, k, n int64
		transA  bool
	}{{m: 512, k: 512, n: 512}, {m: 4096, k: 4096, n: 4096}, {m: 64, k: 4096, n: 4096}, {m: 10000, k: 784, n: 128}, {m: 4096, k: 4096, n: 1}, {4099, 4099, 1, true}} {
		name := fmt.Sprintf("%d x %d x %d", s.m, s.k, s.n)
		if s.transA {
			name = fmt.Sprintf("(%d x %d)^T x %d", s.k, s.m, s.n)
		}
		cases = append(cases, predictedCase{name, gemm.Product{Dtype: kernels.Float32, Batch: 1, M: s.m, K: s.k, N: s.n, A: gemm.Operand{Trans: s.transA}}})
	}
	return cases
}

// predictedTensor returns products on tensor cores, of operands that are stored as the kernels read them.
func predictedTensor() (cases []predictedCase) {
	for _, form := range []gemm.Form{gemm.BF16, gemm.TF32} {
		for _, s := range [][3]int64{{512, 512, 512}, {4096, 4096, 4096}, {8192, 768, 3072}, {256, 4096, 4096}} {
			cases = append(cases, predictedCase{fmt.Sprintf("%v, %d x %d x %d", form, s[0], s[1], s[2]), gemm.Product{Dtype: kernels.Float32, Batch: 1, M: s[0], K: s[1], N: s[2],
				Round: kernels.Precision(form), A: gemm.Operand{Form: form}, B: gemm.Operand{Form: form, Trans: true}}})
		}
	}
	return cases
}

// peak returns the multiply-adds a second of a GPU without a record for a case.
func (c predictedCase) peak(dev kernels.Device, tensor float64) float64 {
	p, ok := c.predictor.(gemm.Product)
	switch {
	case ok && p.Round == kernels.TF32:
		return tensor / 2
	case ok && p.Round != kernels.FullPrecision:
		return tensor
	}
	return dev.FMAs
}

// predicted returns the tables of predicted times on GPUs that were not measured, beside their roofs: the time of the operands at the peak of the memory, or of the operations
// at the peak of the FMA units or of the tensor cores, whichever is longer.
func predicted() (string, error) {
	lines := [][]string{{"GPU", "SMs", "memory", "FP32", "BF16", "by"}}
	for _, dev := range unmeasured {
		lines = append(lines, []string{dev.Name, fmt.Sprint(dev.SMs), fmt.Sprintf("%.0f GB/s", dev.Bandwidth/1e9), fmt.Sprintf("%.1f TFLOP/s", dev.FMAs*2/1e12),
			fmt.Sprintf("%.0f TFLOP/s", dev.tensor*2/1e12), dev.source})
	}
	var sums []predictedCase
	for _, s := range []sum{{1, 1e6, 1}, {1, 1000, 1000}, {1, 1 << 28, 1}, {1, 1 << 14, 1 << 14}, {1 << 14, 1 << 14, 1}} {
		sums = append(sums, predictedCase{s.String(), s})
	}
	ofSums, err := predictedTable("Sum", sums)
	if err != nil {
		return "", err
	}
	ofProducts, err := predictedTable("Product without tensor cores", predictedProducts())
	if err != nil {
		return "", err
	}
	onTensorCores, err := predictedTable("Product on tensor cores", predictedTensor())
	return records.Grid("lrrrrl", lines) + ofSums + ofProducts + onTensorCores, err
}

// predictedTable returns a table of predicted times by case and GPU, "" if no GPU has one.
func predictedTable(title string, cases []predictedCase) (string, error) {
	lines, some := [][]string{{title}}, false
	for _, dev := range unmeasured {
		lines[0] = append(lines[0], dev.Name, "roof")
	}
	for _, c := range cases {
		line := []string{c.name}
		for _, dev := range unmeasured {
			dev.FMA = true
			us := c.Predicted(dev.Device)
			if us == 0 {
				line = append(line, "", "")
				continue
			}
			p, err := c.Plan(dev.Device)
			if err != nil {
				return "", fmt.Errorf("%s on %s: %w", c.name, dev.Name, err)
			}
			some = true
			line = append(line, records.Micros(us), records.Micros(max(float64(p.Bytes())/dev.Bandwidth, float64(p.Flops)/2/c.peak(dev.Device, dev.tensor))*1e6))
		}
		lines = append(lines, line)
	}
	if !some {
		return "", nil
	}
	return "\n" + records.Grid("lr", lines), nil
}

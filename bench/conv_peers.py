"""Times cuDNN, through PyTorch, on the layers that TestConvDrawnTimes or TestConvLayerTimes of cudaops/bench times on plans. It reads the lines
of that test, takes the layers and the times from them, and prints each layer, cuDNN's time over ours, the geometric mean and the worst.

	STHENO_TIMES=. go test ./cudaops/bench -run TestConvDrawnTimes -timeout 60s -v | tee times.log
	python3 bench/conv_peers.py SECONDS < times.log

The 63 cells of ResNet-50's layers, of chosen plans alone, take 12 and 45 seconds:

	STHENO_TIMES='^$' go test ./cudaops/bench -run TestConvLayerTimes -timeout 30s -v | tee times.log
	python3 bench/conv_peers.py 60 < times.log

cuDNN searches for its best algorithm (benchmark mode), and calls are captured in CUDA graphs. Operands are held several times over, as timing.py
holds them and the test ours, so that both read memory. For TF32, BF16 and F16 the better of
channels first and channels last counts, for ours as well: images and outputs of BF16 and F16 are in 16 bits for cuDNN, and for ours where
they have channels last. Filters of ours are as the compiler prepares them, where it does, as those of cuDNN have channels last. The ratio of the best candidate shows what the choice loses.
"""

import math
import re
import sys
import time

import torch

from timing import copies, median_us

LAYER = re.compile(r"layer ((?:\d+ ){13})(\S+) (\S+) ([\d.]+) us, best ([\d.]+)")


def graphed(call, sets):
    graphs, results = [], []
    for _ in range(2):
        call(*sets[0])
    torch.cuda.synchronize()
    pool = torch.cuda.graph_pool_handle()  # of all graphs: they share cuDNN's workspace, as ours share theirs
    for operands in sets:
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], pool=pool):
            results.append(call(*operands))  # kept, so that each graph has its own result
    return lambda i: graphs[i % len(graphs)].replay()


def cudnn_us(sizes, result, precision, layout):
    images, channels, filters, groups, high, wide, r, s, stride_y, stride_x, dilation, pad_y, pad_x = sizes
    torch.backends.cudnn.allow_tf32 = precision == "TF32"
    how = dict(device="cuda", dtype={"BF16": torch.bfloat16, "F16": torch.float16}.get(precision, torch.float32))
    options = (stride_y, stride_x), (pad_y, pad_x), (dilation, dilation)

    def operands():
        x = torch.randn(images, channels, high, wide, **how).contiguous(memory_format=layout)
        w = torch.randn(filters, channels // groups, r, s, **how).contiguous(memory_format=layout)
        return x, w, torch.randn_like(torch.conv2d(x, w, None, *options, groups))

    def call(x, w, y):
        if result == "conv":
            return torch.conv2d(x, w, None, *options, groups)
        wanted = [result == "conv_images", result == "conv_filters", False]
        return torch.ops.aten.convolution_backward(y, x, w, None, *options, False, (0, 0), groups, wanted)

    return median_us(graphed(call, copies(operands())), 7, warm=10)


until, ratios = 0, []
for line in sys.stdin:
    found = LAYER.search(line)
    if not found:
        continue
    until = until or time.monotonic() + float(sys.argv[1])
    if time.monotonic() > until:
        print("out of time")
        break
    sizes, result, precision, us = [int(n) for n in found[1].split()], found[2], found[3], float(found[4])
    layouts = [torch.contiguous_format] + [torch.channels_last] * (precision in ("TF32", "BF16", "F16"))
    try:
        best = min(cudnn_us(sizes, result, precision, layout) for layout in layouts)
    except Exception as e:
        print(f"cuDNN failed: {str(e)[:80]}: {line.strip()}")
        continue
    ratios.append((best / us, best / float(found[5]), line.strip()))
    print(f"{best / us:6.2f} {best / float(found[5]):6.2f} cuDNN {best:9.2f} us, {line.strip()}", flush=True)
    torch.cuda.empty_cache()
ratios.sort()


def summary(name, rows):
    mean, best = (math.exp(sum(math.log(r[i]) for r in rows) / len(rows)) for i in range(2))
    print(f"{name}: {len(rows)} layers, geometric mean {mean:.2f}, by the best candidate {best:.2f}, {sum(r[0] < 0.6 for r in rows)} below 0.6")


for name in ("float32", "TF32", "BF16", "F16", "conv ", "conv_images ", "conv_filters ", ""):
    some = [r for r in ratios if f" {name}" in r[2]]
    if some:
        summary(name or "all", some)
for ratio, best, line in ratios[:10]:
    print(f"worst {ratio:.2f} {best:.2f} {line}")

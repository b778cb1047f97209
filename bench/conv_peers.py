"""Times cuDNN, through PyTorch, on the layers that TestConvDrawnTimes or TestConvLayerTimes of cudaops/bench times on plans. It reads the lines
of that test, takes the layers and the times from them, and prints each layer, cuDNN's time over ours, the geometric mean and the worst.

	STHENO_SEED=1 STHENO_TIMES='^$' go test ./cudaops/bench -run 'TestConvDrawnTimes/[0-9]$' -v | tee times.log
	python3 bench/conv_peers.py SECONDS [PROCESSES] < times.log

The test has ten parts of 20 layers. With the same seed, runs of some of them make up the 200: a line that this script has printed counts in its
summary, so `cat *.log | python3 bench/conv_peers.py 0` sums up several runs.

The 63 cells of ResNet-50's layers, of chosen plans alone, take 12 and 45 seconds:

	STHENO_TIMES='^$' go test ./cudaops/bench -run TestConvLayerTimes -timeout 30s -v | tee times.log
	python3 bench/conv_peers.py 60 < times.log

cuDNN searches for its best algorithm (benchmark mode), and calls are captured in CUDA graphs. Operands are held several times over, as timing.py
holds them and the test ours, so that both read memory. For TF32, BF16 and F16 the better of
channels first and channels last counts, for ours as well: images and outputs of BF16 and F16 are in 16 bits for cuDNN, and for ours where
they have channels last. Filters of ours are as the compiler prepares them, where it does, as those of cuDNN have channels last. The ratio of the best candidate shows what the choice loses.

Most of a search is the CPU's, which builds and loads the algorithms. Several processes search at once, each for its layers, to load what they need. Then one process after the other searches again and
times, in a new thread, since PyTorch has a cache of algorithms for each thread: nothing else runs on the GPU then.
"""

import concurrent.futures
import math
import multiprocessing
import queue
import re
import sys
import time

import torch

from timing import copies, median_us

LAYER = re.compile(r"layer ((?:\d+ ){13})(\S+) (\S+) ([\d.]+) us, best ([\d.]+)")
PRINTED = re.compile(r"^ *([\d.]+) +([\d.]+) cuDNN +[\d.]+ us, (.*)")


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


def cudnn_us(layer, timed):
    """Searches for cuDNN's best algorithm; if timed, returns its time in us in the better layout."""
    sizes, result, precision = [int(n) for n in layer[1].split()], layer[2], layer[3]
    images, channels, filters, groups, high, wide, r, s, stride_y, stride_x, dilation, pad_y, pad_x = sizes
    torch.backends.cudnn.allow_tf32 = precision == "TF32"
    how = dict(device="cuda", dtype={"BF16": torch.bfloat16, "F16": torch.float16}.get(precision, torch.float32))
    options = (stride_y, stride_x), (pad_y, pad_x), (dilation, dilation)
    outs = ((size + 2 * pad - (taps - 1) * dilation - 1) // stride + 1 for size, taps, stride, pad in ((high, r, stride_y, pad_y), (wide, s, stride_x, pad_x)))
    shapes = (images, channels, high, wide), (filters, channels // groups, r, s), (images, filters, *outs)

    def call(x, w, y):
        if result == "conv":
            return torch.conv2d(x, w, None, *options, groups)
        wanted = [result == "conv_images", result == "conv_filters", False]
        return torch.ops.aten.convolution_backward(y, x, w, None, *options, False, (0, 0), groups, wanted)

    best = math.inf
    for layout in [torch.contiguous_format] + [torch.channels_last] * (precision in ("TF32", "BF16", "F16")):
        operands = tuple(torch.randn(*shape, **how).contiguous(memory_format=layout) for shape in shapes)
        if timed:
            best = min(best, median_us(graphed(call, copies(operands)), 7, warm=10))
        else:
            call(*operands)
            torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return best


def attempt(f, *arguments):
    """Returns what f returns, or its exception, and how many seconds it took."""
    begun = time.monotonic()
    try:
        value = f(*arguments)
    except Exception as e:
        value = RuntimeError(str(e))
    return value, time.monotonic() - begun


def work(rank, count, lines, until, barrier, turn, results):
    """Times every count-th layer and sends a tuple of the line, the time or an exception, and the seconds of both searches. Those for which there is no time are left out."""
    layers, searches = [LAYER.search(line) for line in lines[rank::count]], []
    for layer in layers:
        if count > 1 and time.time() < until:
            searches.append(attempt(cudnn_us, layer, False))
    barrier.wait(100)
    with turn, concurrent.futures.ThreadPoolExecutor(1) as thread:
        for line, layer, (value, searched) in zip(lines[rank::count], layers, searches or [(None, 0)] * len(layers)):
            timed = 0
            if not isinstance(value, Exception):
                if time.time() > until:
                    break
                value, timed = attempt(lambda: thread.submit(cudnn_us, layer, True).result())
            results.put((line, value, searched, timed))
    results.put(None)


def summary(name, rows):
    mean, best = (math.exp(sum(math.log(r[i]) for r in rows) / len(rows)) for i in range(2))
    print(f"{name}: {len(rows)} layers, geometric mean {mean:.2f}, by the best candidate {best:.2f}, {sum(r[0] < 0.6 for r in rows)} below 0.6")


def measure(lines, seconds, count):
    """Yields the ratios of layers as they are timed."""
    spawn = multiprocessing.get_context("spawn")
    barrier, turn, results, until = spawn.Barrier(count), spawn.Lock(), spawn.Queue(), time.time() + seconds
    workers = [spawn.Process(target=work, args=(rank, count, lines, until, barrier, turn, results), daemon=True) for rank in range(count)]
    for worker in workers:
        worker.start()
    ended, spent = 0, [0.0, 0.0]
    while ended < count:
        try:
            result = results.get(timeout=120)
        except queue.Empty:
            print("a process failed")
            break
        if result is None:
            ended += 1
            continue
        line, us, *times = result
        spent = [a + b for a, b in zip(spent, times)]
        if isinstance(us, Exception):
            print(f"cuDNN failed: {str(us)[:80]}: {line}", flush=True)
            continue
        layer = LAYER.search(line)
        ratio, best = us / float(layer[4]), us / float(layer[5])
        print(f"{ratio:6.2f} {best:6.2f} cuDNN {us:9.2f} us, {line}", flush=True)
        yield ratio, best, line
    print(f"seconds: first searches {spent[0]:.1f} in {count} processes, second ones and times {spent[1]:.1f}")


def main():
    lines = [line.strip() for line in sys.stdin]
    ratios = [(float(m[1]), float(m[2]), m[3]) for m in map(PRINTED.match, lines) if m]
    known = {line for _, _, line in ratios}
    lines = [line for line in lines if LAYER.search(line) and not PRINTED.match(line) and line not in known]
    if float(sys.argv[1]) > 0:
        ratios += measure(lines, float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    for name in ("float32", "TF32", "BF16", "F16", "conv ", "conv_images ", "conv_filters ", ""):
        some = [r for r in ratios if f" {name}" in r[2]]
        if some:
            summary(name or "all", some)
    for ratio, best, line in sorted(ratios)[:10]:
        print(f"worst {ratio:.2f} {best:.2f} {line}")


if __name__ == "__main__":
    main()

"""How peers are timed.

The method is stheno bench gpu's: random operands in device memory, results
too; operands that together are smaller than four times the level-2 cache are
held several times over and take turns; warm-up of 50 ms; times between CUDA
events at least a millisecond apart, the work queued back to back; the median.
"""

import statistics

import torch

try:
    import cupy
except ImportError:
    cupy = None

TORCH = "PyTorch " + torch.__version__.split("+")[0]
NAMES = {torch.float32: "f32", torch.float64: "f64", torch.uint8: "u8"}

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True
torch.manual_seed(torch.seed() % (1 << 31))


def rand(dtype, *shape):
    """Uniform in [-1, 1)."""
    return torch.rand(*shape, dtype=dtype, device="cuda").mul_(2).sub_(1)


def span(run, n, first):
    """Milliseconds of n runs, of which the first is number first."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for i in range(n):
        run(first + i)
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop)


def median_us(run, runs=30, each=0, warm=50):
    """Microseconds of a run, the median of runs means of each; 0 for means of at least a millisecond. Ranks set it, since all make as many runs. warm is in ms."""
    calls, n = 2 * each, each
    if each:
        span(run, calls, 0)
    else:
        n = 1
        while True:  # warm up and learn how long a run takes
            ms = span(run, n, calls)
            calls += n
            if ms >= warm or n >= 4096:
                break
            n *= 2
        one = max(ms / n, 1e-6)
        n = int(min(max(1 / one, 1), 4096))
        runs = min(runs, max(int(3000 / (one * n)), 5))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(runs + 1)]
    events[0].record()
    for event in events[1:]:
        for _ in range(n):
            run(calls)
            calls += 1
        event.record()
    torch.cuda.synchronize()
    return 1000 * statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])) / n


def copies(first):
    """Operands and copies of them, four times the level-2 cache together, at most 64."""
    size = sum(t.numel() * t.element_size() for t in first)
    count = min(max(-(-4 * torch.cuda.get_device_properties(0).L2_cache_size // size), 1), 64)
    return [first] + [tuple(t.clone() for t in first) for _ in range(count - 1)]


def in_turns(make, f):
    """f on copies of the operands that make gives, in turns."""
    sets = copies(make())
    return lambda i: f(*sets[i % len(sets)])

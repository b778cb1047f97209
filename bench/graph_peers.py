"""Times PyTorch and JAX on the graphs of `stheno bench graphs`; bench/peers.py -graphs
runs it.

PyTorch eager, captured as one CUDA graph, and compiled by Inductor and captured; JAX
jitted. Method: operands on the device, the same in every run; warm-up; PyTorch by
CUDA events at least a millisecond apart, JAX by the clock over calls that are queued
back to back, as it has no events; the median. float32 products are of full precision.

Programs are compiled ahead on all cores, and nothing else runs while one is timed. A
row is written when it is there. What took too long or failed is told, and the
status is 1 then.
"""

import contextlib
import functools
import json
import multiprocessing
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from log import Log, first_line

ROWS, COLUMNS, WIDTHS = 16384, (128, 1000, 4096, 32768), (784, 512, 512, 10)
DEVICE = "cuda"  # the programs run anywhere


def chain10(l, a, b, c):
    x = l.sigmoid(l.tanh(a * b) + c) * a
    return l.exp(-(x * x)) * b + c


def perceptron(l, x, classes, *w):
    for i in range(0, len(w), 2):
        x = l.dense(l.relu(x) if i else x, w[i], w[i + 1])
    return entropy(l, x, classes)


def entropy(l, x, classes):
    return -(l.log_softmax(x) * classes).sum(1).mean()


def convnet(l, x, classes, *w):
    for filters in w[:-2]:
        x = l.max_pool(l.relu(l.convolve(x, filters)))
    return entropy(l, l.relu(x.reshape(len(x), -1) @ w[-2]) @ w[-1], classes)


ROWWISE = {
    "softmax": lambda l, x: l.softmax(x),
    "log-softmax": lambda l, x: l.log_softmax(x),
    "layer norm": lambda l, x: l.layer_norm(x),
}


def cases():
    """Yields name, size, shapes of the operands as kind and extents, the program f(library, *operands), and by which operands its gradient is wanted.

    A program with a gradient gives a loss, and runs forward and backward.
    """
    def vector(n):
        return [("uniform", n)] * 3

    yield "map tanh(a*b)+c", "2^28", vector(1 << 28), lambda l, a, b, c: l.tanh(a * b) + c, ()
    for name, f in (
        ("chain of 2", lambda l, a, b, c: a * b + c),
        ("chain of 5", lambda l, a, b, c: l.sigmoid(a * b) * l.tanh(c) + a),
        ("chain of 10", chain10),
    ):
        for k in (26, 28):
            yield name, f"2^{k}", vector(1 << k), f, ()
    for n in COLUMNS:
        size = f"{ROWS}x{n}"
        for name, f in ROWWISE.items():
            yield name, size, [("uniform", ROWS, n)], f, ()
            yield name + ", gradient", size, [("uniform", ROWS, n), ("positive", ROWS, n)], lambda l, x, w, f=f: (f(l, x) * w).sum(), (0,)
        yield "cross-entropy, gradient", size, [("uniform", ROWS, n), ("classes", ROWS, n)], entropy, (0,)
    for batch in (128, 4096):
        shapes = [("uniform", batch, WIDTHS[0]), ("classes", batch, WIDTHS[-1])]
        for a, b in zip(WIDTHS, WIDTHS[1:]):
            shapes += [("weights", a, b), ("weights", b)]
        yield "MLP " + "-".join(map(str, WIDTHS)) + ", gradient", f"batch {batch}", shapes, perceptron, tuple(range(2, len(shapes)))
    for batch in (100, 2048):
        shapes = [("uniform", batch, 1, 28, 28), ("classes", batch, 10)]
        shapes += [("weights", *s) for s in ((32, 1, 3, 3), (64, 32, 3, 3), (128, 64, 3, 3), (1152, 625), (625, 10))]
        yield "convnet, gradient", f"batch {batch}", shapes, convnet, tuple(range(2, len(shapes)))


def selected(pattern):
    return [c for c in cases() if re.search(pattern, f"{c[0]}/{c[1]}/f32")]


# PyTorch


class Torch:
    """What the programs call, in PyTorch."""

    def __init__(self):
        import torch

        f = torch.nn.functional
        self.sigmoid, self.tanh, self.exp, self.relu = torch.sigmoid, torch.tanh, torch.exp, torch.relu
        self.softmax = lambda x: torch.softmax(x, 1)
        self.log_softmax = lambda x: torch.log_softmax(x, 1)
        self.layer_norm = lambda x: f.layer_norm(x, x.shape[1:], eps=1e-5)
        self.dense = lambda x, w, b: torch.addmm(b, x, w)
        self.convolve = lambda x, w: f.conv2d(x, w, padding=1)
        self.max_pool = lambda x: f.max_pool2d(x, 2)


def torch_operands(shapes, wanted):
    import torch

    def operand(kind, *shape):
        if kind == "classes":
            return torch.nn.functional.one_hot(torch.randint(shape[1], shape[:1], device=DEVICE), shape[1]).float()
        x = torch.rand(*shape, device=DEVICE)
        if kind != "positive":
            x.mul_(2).sub_(1)
        return x / 16 if kind == "weights" else x

    return [operand(*s).requires_grad_(i in wanted) for i, s in enumerate(shapes)]


def torch_step(f, operands, wanted, compiled):
    """A call of the program and, where it has one, of its gradient."""
    import torch

    library = Torch()
    forward = lambda *x: f(library, *x)
    if compiled:
        torch._dynamo.reset()
        forward = torch.compile(forward, dynamic=False)

    def step():
        out = forward(*operands)
        return (out.detach(), *torch.autograd.grad(out, [operands[i] for i in wanted])) if wanted else out

    return step


def captured(step):
    """The step as one CUDA graph."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph.out = step()
    return graph.replay


WORKERS, GPU_SHARE = 12, 0.9  # processes that compile, and the part of the GPU's memory that they take
NO_COMPILER, COMPILED = ("eager", "captured"), "compiled, captured"


def torch_program(case, who):
    """The call that is timed."""
    _, _, shapes, f, wanted = case
    step = torch_step(f, torch_operands(shapes, wanted), wanted, who == COMPILED)
    return step if who == "eager" else captured(step)


def compile_torch(pattern, k):
    """Compiles a program, and so fills Inductor's cache."""
    _, _, shapes, f, wanted = selected(pattern)[k]
    torch_step(f, torch_operands(shapes, wanted), wanted, True)()


def run_torch(log, todo, program, compile_, pattern, median_us, until):
    """Times program(case, who), None where there is no such program, until a point of time. compile_(pattern, k) compiles that of todo[k]."""
    import torch

    by = "PyTorch " + torch.__version__.split("+")[0] + " "
    # What needs no compiler comes first.
    for variants in (NO_COMPILER, (COMPILED,)):
        if COMPILED in variants:
            compile_ahead(compile_, pattern, todo, (until - time.monotonic()) / 2)
        for case in todo:
            for who in variants:
                call = None
                torch.cuda.empty_cache()
                try:
                    with at_most(min(CASE_SECONDS, until - time.monotonic())):
                        call = program(case, who)
                        if call:
                            log.add(key_of(case), by + who, median_us(lambda _: call()))
                except Exception as e:
                    log.failed(key_of(case), by + who, e)


def compile_ahead(compile_, pattern, todo, seconds):
    """Compiles programs in several processes: one after the other they would take minutes. A program that is not ready in time is compiled where it is timed."""
    start = time.monotonic()
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # of each process
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), "stheno-inductor"))
    workers = max(min(len(todo), WORKERS, (os.cpu_count() or 1) - 1), 1)
    with multiprocessing.get_context("spawn").Pool(workers, limit_memory, (GPU_SHARE / workers,)) as pool:
        compiled = pool.imap_unordered(try_to_compile, [(compile_, pattern, k) for k in range(len(todo))])
        with contextlib.suppress(multiprocessing.TimeoutError):
            for _ in todo:
                k, took, error = compiled.next(max(start + seconds - time.monotonic(), 0.1))
                print(f"{todo[k][0]}/{todo[k][1]}: compiled ahead in {took:.1f} s{error}")
    # Kernels that were chosen by timing them while others ran are chosen again.
    for choice in pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.best_config"):
        choice.unlink()
    print(f"PyTorch compiled ahead in {time.monotonic() - start:.1f} s by {workers} processes")


def limit_memory(share):
    """Keeps a process to a share of the GPU's memory: who exceeds it when a program runs has compiled it already."""
    import torch

    torch.cuda.set_per_process_memory_fraction(share)


def try_to_compile(task):
    """Returns the number of the program, the seconds that it took, and an error as text."""
    import torch

    compile_, pattern, k = task
    start, error = time.monotonic(), ""
    try:
        compile_(pattern, k)
    except Exception as e:
        error = f": {type(e).__name__}: {first_line(e)}"
    torch.cuda.empty_cache()
    return k, time.monotonic() - start, error


# JAX


class Jax:
    """What the programs call, in JAX."""

    def __init__(self):
        import jax
        import jax.numpy as jnp

        self.sigmoid, self.tanh, self.exp, self.relu = jax.nn.sigmoid, jnp.tanh, jnp.exp, jax.nn.relu
        self.softmax, self.log_softmax = jax.nn.softmax, jax.nn.log_softmax
        self.layer_norm = lambda x: (x - x.mean(1, keepdims=True)) * jax.lax.rsqrt(x.var(1, keepdims=True) + 1e-5)
        self.dense = lambda x, w, b: x @ w + b
        self.convolve = lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME")
        self.max_pool = lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def jax_function(f, wanted):
    import jax

    library = Jax()
    forward = lambda *x: f(library, *x)
    return jax.jit(jax.value_and_grad(forward, wanted) if wanted else forward)


def jax_operands(shapes):
    return [jax_operand(i, *s) for i, s in enumerate(shapes)]


@functools.lru_cache(4)  # cases of one size have the same ones
def jax_operand(i, kind, *shape):
    import jax
    import jax.numpy as jnp

    key = jax.random.PRNGKey(i)
    if kind == "classes":
        return jax.nn.one_hot(jax.random.randint(key, shape[:1], 0, shape[1]), shape[1], dtype=jnp.float32)
    low, high = {"uniform": (-1, 1), "positive": (0, 1), "weights": (-1 / 16, 1 / 16)}[kind]
    return jax.random.uniform(key, shape, jnp.float32, low, high)


def compile_jax(case):
    import jax
    import jax.numpy as jnp

    name, size, shapes, f, wanted = case
    return jax_function(f, wanted).lower(*(jax.ShapeDtypeStruct(s[1:], jnp.float32) for s in shapes)).compile()


def jax_us(call):
    """Microseconds of a call, of whose results the last is waited for: the median of groups that take 20 ms."""
    import jax

    def group(n):
        start = time.perf_counter()
        for _ in range(n):
            out = call()
        jax.block_until_ready(out)
        return (time.perf_counter() - start) / n

    group(3)
    n = max(int(0.02 / group(5)), 1)
    group(n)
    return 1e6 * statistics.median(group(n) for _ in range(9))


def jax_settings():
    """Full precision, no more memory than is needed, and a cache on disk: what two steps have in common is compiled once."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")
    jax.config.update("jax_compilation_cache_dir", os.path.join(tempfile.gettempdir(), "stheno-jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    return f"JAX {jax.__version__} jit"


def run_jax(path, pattern):
    by, log = jax_settings(), resumed(path)
    # XLA chooses among kernels by timing them: one program after the other.
    for case in selected(pattern):
        try:
            start = time.monotonic()
            f = compile_jax(case)
            took, operands = time.monotonic() - start, jax_operands(case[2])
            log.add(key_of(case), by, jax_us(lambda: f(*operands)), took)
        except Exception as e:
            log.failed(key_of(case), by, e)
    return log.status()


# Both


CASE_SECONDS = 60


@contextlib.contextmanager
def at_most(seconds):
    """Ends its block by an exception, once Python's code is reached."""
    def stop(*_):
        raise TimeoutError(f"not done in {seconds:.0f} s")

    if seconds <= 0:
        raise TimeoutError("no time is left")
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def key_of(case):
    """The op, the case and the type of rows of a program, from its name and size."""
    return *case[:2], "f32"


def resumed(path):
    """The log of a run that goes on where another ended."""
    return Log(path, json.load(open(path)) if os.path.exists(path) else ())


def one_after_the_other(script, path, pattern, seconds, torch_part):
    """PyTorch with three fifths of the time at most, and JAX with the rest in a process of its own, so that their libraries and memory do not interfere."""
    start = time.monotonic()
    if os.path.exists(path):
        os.remove(path)
    log = Log(path)
    torch_part(log, start + 0.6 * seconds)
    status = log.status()
    print(f"PyTorch took {time.monotonic() - start:.1f} s")
    try:
        status |= subprocess.run([sys.executable, script, "jax", path, pattern], timeout=max(start + seconds - time.monotonic(), 1)).returncode
    except subprocess.TimeoutExpired as e:
        print(f"JAX was not done in {e.timeout:.0f} s")
        status = 1
    print(f"all took {time.monotonic() - start:.1f} s")
    return status


def main(path, pattern, median_us, seconds):
    return one_after_the_other(__file__, path, pattern, seconds,
                               lambda log, until: run_torch(log, selected(pattern), torch_program, compile_torch, pattern, median_us, until))


if __name__ == "__main__":
    sys.exit(run_jax(*sys.argv[2:]))

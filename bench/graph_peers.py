"""Times PyTorch and JAX on whole graphs; bench/peers.py runs it. A case has its op, case and dtype, the kinds and shapes of
its inputs, and those by which the gradient is wanted. Here are the programs.

PyTorch eager, captured as one CUDA graph, and compiled by Inductor and captured; JAX
jitted. Method: operands on the device, the same in every run; warm-up; PyTorch by
CUDA events at least a millisecond apart, JAX by the clock over calls that are queued
back to back, as it has no events; the median. float32 products are of full precision.

Programs are compiled ahead on all cores, and nothing else runs while one is timed. A
record is written when it is there. What took too long or failed is told, and the
status is 1 then.
"""

import contextlib
import functools
import json
import multiprocessing
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from log import Log, first_line, key_of

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


def weighed(f):
    """The sum of f(l, x), weighed, as a loss."""
    return lambda l, x, w: (f(l, x) * w).sum()


ROWWISE = {"softmax": lambda l, x: l.softmax(x), "log-softmax": lambda l, x: l.log_softmax(x), "layer norm": lambda l, x: l.layer_norm(x)}

# Programs f(library, *operands) by how the name of a case begins. One with a gradient gives a loss, and runs forward and backward.
PROGRAMS = {
    "map tanh(a*b)+c": lambda l, a, b, c: l.tanh(a * b) + c,
    "chain of 2": lambda l, a, b, c: a * b + c,
    "chain of 5": lambda l, a, b, c: l.sigmoid(a * b) * l.tanh(c) + a,
    "chain of 10": chain10,
    "cross-entropy": entropy,
    "MLP": perceptron,
    "convnet": convnet,
} | ROWWISE | {name + ", gradient": weighed(f) for name, f in ROWWISE.items()}


def program_of(case, programs=PROGRAMS):
    return programs[max((name for name in programs if case["op"].startswith(name)), key=len)]


def shapes_of(inputs):
    """The kind and the extents of each input."""
    return [(i["kind"], *i["shape"]) for i in inputs]


def read(path):
    with open(path) as file:
        return json.load(file)


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
    step = torch_step(program_of(case), torch_operands(shapes_of(case["inputs"]), case["wanted"]), case["wanted"], who == COMPILED)
    return step if who == "eager" else captured(step)


def compile_torch(case):
    """Compiles a program, and so fills Inductor's cache."""
    torch_step(program_of(case), torch_operands(shapes_of(case["inputs"]), case["wanted"]), case["wanted"], True)()


def run_torch(log, todo, program, compile_, median_us, until):
    """Times program(case, who), None where there is no such program, until a point of time. compile_(case) compiles one."""
    import torch

    by = "PyTorch " + torch.__version__.split("+")[0] + " "
    # What needs no compiler comes first.
    for variants in (NO_COMPILER, (COMPILED,)):
        if COMPILED in variants:
            compile_ahead(compile_, todo, (until - time.monotonic()) / 2)
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


def compile_ahead(compile_, todo, seconds):
    """Compiles programs in several processes: one after the other they would take minutes. A program that is not ready in time is compiled where it is timed."""
    start = time.monotonic()
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # of each process
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), "stheno-inductor"))
    workers = max(min(len(todo), WORKERS, (os.cpu_count() or 1) - 1), 1)
    with multiprocessing.get_context("spawn").Pool(workers, limit_memory, (GPU_SHARE / workers,)) as pool:
        compiled = pool.imap_unordered(try_to_compile, [(compile_, case) for case in todo])
        with contextlib.suppress(multiprocessing.TimeoutError):
            for _ in todo:
                name, took, error = compiled.next(max(start + seconds - time.monotonic(), 0.1))
                print(f"{name}: compiled ahead in {took:.1f} s{error}")
    # Kernels that were chosen by timing them while others ran are chosen again.
    for choice in pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.best_config"):
        choice.unlink()
    print(f"PyTorch compiled ahead in {time.monotonic() - start:.1f} s by {workers} processes")


def limit_memory(share):
    """Keeps a process to a share of the GPU's memory: who exceeds it when a program runs has compiled it already."""
    import torch

    torch.cuda.set_per_process_memory_fraction(share)


def try_to_compile(task):
    """Returns the name of the program, the seconds that it took, and an error as text."""
    import torch

    compile_, case = task
    start, error = time.monotonic(), ""
    try:
        compile_(case)
    except Exception as e:
        error = f": {type(e).__name__}: {first_line(e)}"
    torch.cuda.empty_cache()
    return "/".join(key_of(case)), time.monotonic() - start, error


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
    low, high = {"": (-1, 1), "positive": (0, 1), "weights": (-1 / 16, 1 / 16)}[kind]
    return jax.random.uniform(key, shape, jnp.float32, low, high)


def compile_jax(case):
    import jax
    import jax.numpy as jnp

    return jax_function(program_of(case), tuple(case["wanted"])).lower(*(jax.ShapeDtypeStruct(i["shape"], jnp.float32) for i in case["inputs"])).compile()


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


def run_jax(cases, path):
    by, log = jax_settings(), resumed(path)
    # XLA chooses among kernels by timing them: one program after the other.
    for case in read(cases):
        try:
            start = time.monotonic()
            f = compile_jax(case)
            took, operands = time.monotonic() - start, jax_operands(shapes_of(case["inputs"]))
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


def resumed(path):
    """The log of a run that goes on where another ended."""
    return Log(path, read(path) if os.path.exists(path) else ())


def one_after_the_other(script, cases, path, seconds, torch_part):
    """PyTorch with three fifths of the time at most, and JAX with the rest in a process of its own, so that their libraries and memory do not interfere."""
    start = time.monotonic()
    if os.path.exists(path):
        os.remove(path)
    log = Log(path)
    torch_part(log, start + 0.6 * seconds)
    status = log.status()
    print(f"PyTorch took {time.monotonic() - start:.1f} s")
    try:
        status |= subprocess.run([sys.executable, script, cases, path], timeout=max(start + seconds - time.monotonic(), 1)).returncode
    except subprocess.TimeoutExpired as e:
        print(f"JAX was not done in {e.timeout:.0f} s")
        status = 1
    print(f"all took {time.monotonic() - start:.1f} s")
    return status


def run(cases, path, median_us, seconds):
    return one_after_the_other(__file__, cases, path, seconds, lambda log, until: run_torch(log, read(cases), torch_program, compile_torch, median_us, until))


if __name__ == "__main__":
    sys.exit(run_jax(*sys.argv[1:]))

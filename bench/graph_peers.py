"""Times PyTorch and JAX on the graphs of `stheno bench graphs`; bench/peers.py -graphs
runs it.

PyTorch eager, captured as one CUDA graph, and compiled by Inductor and captured; JAX
jitted. Method: operands on the device, the same in every run; warm-up; PyTorch by
CUDA events at least a millisecond apart, JAX by the clock over calls that are queued
back to back, as it has no events; the median. float32 products are of full precision.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

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


TORCH = {
    "eager": lambda *program: torch_step(*program, False),
    "captured": lambda *program: captured(torch_step(*program, False)),
    "compiled, captured": lambda *program: captured(torch_step(*program, True)),
}


def compile_ahead(pattern, workers=8):
    """Compiles all programs in several processes, which fill Inductor's cache: one after the other they would take minutes."""
    environment = dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS="2")
    command = [sys.executable, __file__, "compile", pattern, str(workers)]
    started = [subprocess.Popen(command + [str(k)], env=environment) for k in range(workers)]
    for process in started:
        process.wait()


def compile_share(pattern, workers, k):
    """Compiles every n-th program."""
    for name, size, shapes, f, wanted in selected(pattern)[k::workers]:
        try:
            torch_step(f, torch_operands(shapes, wanted), wanted, True)()
        except Exception as e:
            print(f"{name}/{size}: compile: {type(e).__name__}: {first_line(e)}")


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
    import jax
    import jax.numpy as jnp

    def operand(key, kind, *shape):
        if kind == "classes":
            return jax.nn.one_hot(jax.random.randint(key, shape[:1], 0, shape[1]), shape[1], dtype=jnp.float32)
        low, high = {"uniform": (-1, 1), "positive": (0, 1), "weights": (-1 / 16, 1 / 16)}[kind]
        return jax.random.uniform(key, shape, jnp.float32, low, high)

    return [operand(jax.random.PRNGKey(i), *s) for i, s in enumerate(shapes)]


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


def run_jax(path, pattern):
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")
    todo = selected(pattern)
    start = time.perf_counter()
    programs = {}
    # XLA chooses among kernels for products and convolutions by timing them: those programs come first, alone.
    for workers, products in ((1, True), (8, False)):
        with ThreadPoolExecutor(workers) as pool:
            for case in todo:
                if (case[3] in (perceptron, convnet)) == products:
                    programs[case[:2]] = pool.submit(compile_jax, case)
    print(f"JAX {jax.__version__} compiled {len(todo)} programs in {time.perf_counter() - start:.1f} s")
    log = Log(path)
    for case in todo:
        try:
            f, operands = programs[case[:2]].result(), jax_operands(case[2])
            log.add(case, f"JAX {jax.__version__} jit", jax_us(lambda: f(*operands)))
        except Exception as e:
            log.failed(case, "JAX", e)


# Both


class Log:
    """The rows of a run, printed and written as they come, for a run that is cut off."""

    def __init__(self, path):
        self.path = path
        self.rows = json.load(open(path)) if os.path.exists(path) else []

    def add(self, case, by, us):
        name, size = case[:2]
        self.rows.append({"op": name, "case": size, "dtype": "f32", "by": by, "median_us": round(us, 3)})
        print(f"{name}/{size}/f32 {by}: {us:.1f} us")
        with open(self.path, "w") as out:
            json.dump(self.rows, out, indent=1)
            out.write("\n")

    def failed(self, case, by, error):
        print(f"{case[0]}/{case[1]}/f32 {by}: {type(error).__name__}: {first_line(error)}")


def first_line(e):
    return (str(e).splitlines() or [""])[0][:200]


def main(path, pattern, median_us):
    """JAX in a process of its own, so that its libraries and memory do not interfere with PyTorch's; then PyTorch."""
    import torch

    if os.path.exists(path):
        os.remove(path)
    subprocess.run([sys.executable, __file__, "jax", path, pattern])
    log = Log(path)
    start = time.perf_counter()
    compile_ahead(pattern)
    print(f"PyTorch {torch.__version__} compiled ahead in {time.perf_counter() - start:.1f} s")
    by = "PyTorch " + torch.__version__.split("+")[0] + " "
    for case in selected(pattern):
        torch.cuda.empty_cache()
        _, _, shapes, f, wanted = case
        operands = torch_operands(shapes, wanted)
        for who, make in TORCH.items():
            try:
                step = make(f, operands, wanted)
                log.add(case, by + who, median_us(lambda _: step()))
            except Exception as e:
                log.failed(case, by + who, e)


if __name__ == "__main__":
    if sys.argv[1] == "jax":
        run_jax(*sys.argv[2:])
    elif sys.argv[1] == "compile":
        compile_share(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

"""Times PyTorch and JAX on the training steps of `stheno bench steps`; bench/peers.py -steps
runs it.

A step is forward, loss, backward and the solver's update, of parameters and a batch on the device. PyTorch eager,
captured as one CUDA graph, and compiled by Inductor and captured, its optimizers fused;
JAX jitted, parameters and moments donated. "Batch from the host" copies it from pinned memory before each step, "batch from pageable
memory" from ordinary memory, which JAX has in both. Method:
that of bench/graph_peers.py. float32 products are of full precision, but where a step's name ends with TF32 or BF16: PyTorch's are
then in TF32, or under autocast in BF16, compiled and captured alone; JAX's have that precision by default.
"""

import re
import sys
import time

from graph_peers import (COMPILED, DEVICE, Jax, Torch, captured, convnet, entropy, jax_settings, jax_us, key_of,
                         one_after_the_other, perceptron, resumed, run_torch, torch_operands)

RATE = {"SGD": 0.01, "Adam": 0.001}
PRECISIONS = {"TF32": "tensorfloat32", "BF16": "BF16_BF16_F32"}  # as JAX calls them
CONVNET = ((32, 1, 3, 3), (64, 32, 3, 3), (128, 64, 3, 3), (1152, 625), (625, 10))


def lstm(l, x, classes, *w):
    return entropy(l, l.dense(l.lstm(x, *w[:-2]), w[-2], w[-1]), classes)


def weighed(l, x, w):
    """Its gradient is x: what is timed is the update."""
    return (x * w).sum()


def cases():
    """Yields name, size, solver, shapes of the batch, shapes of what is learnt, the loss, and the host's memory that the batch comes from, if any."""
    def mlp(batch, *widths):
        learnt = [s for a, b in zip(widths, widths[1:]) for s in (("weights", a, b), ("weights", b))]
        return "MLP " + "-".join(map(str, widths)), f"batch {batch}", [("uniform", batch, widths[0]), ("classes", batch, widths[-1])], learnt, perceptron

    for batch in (128, 4096):
        for solver in RATE:
            yield *named(solver, *mlp(batch, 784, 512, 512, 10)), None
    name, *rest = named("SGD", *mlp(4096, 784, 512, 512, 10))
    yield name + ", batch from the host", *rest, "pinned"
    yield name + ", batch from pageable memory", *rest, "pageable"
    wide = mlp(4096, 784, 4096, 4096, 10)
    yield *named("SGD", *wide), None
    for sizes in (mlp(128, 784, 512, 512, 10), mlp(4096, 784, 512, 512, 10), wide):
        name, *rest = named("SGD", *sizes)
        for by in PRECISIONS:
            yield f"{name}, {by}", *rest, None
    for batch in (100, 2048):
        yield *named("SGD", "convnet", f"batch {batch}", [("uniform", batch, 1, 28, 28), ("classes", batch, 10)], [("weights", *s) for s in CONVNET], convnet), None
    shapes = [("weights", *s) for s in ((64, 1024), (256, 1024), (1024,), (256, 10), (10,))]
    yield *named("SGD", "LSTM 64-256, 50 steps", "batch 64", [("uniform", 50, 64, 64), ("classes", 64, 10)], shapes, lstm), None
    yield *named("Adam", "update of 10^8 parameters", "alone", [("uniform", 10**8)], [("weights", 10**8)], weighed), None


def named(solver, name, size, batch, learnt, loss):
    return f"{name}, {solver}", size, solver, batch, learnt, loss


def precision(case):
    """TF32, BF16, or None for full precision."""
    by = case[0].rsplit(", ", 1)[-1]
    return by if by in PRECISIONS else None


def selected(pattern):
    return [c for c in cases() if re.search(pattern, f"{c[0]}/{c[1]}/f32")]


# PyTorch


def torch_library():
    import torch

    library, cells = Torch(), {}

    def lstm(x, wx, wh, b):
        """The last state. The layer has its weights in another order and a second bias."""
        return cells["lstm"](x)[0][-1]

    library.lstm = lstm
    return library, cells


def torch_step(case, compiled):
    """A call of a step, and the tensors of the batch."""
    import torch

    _, _, solver, batch, learnt, loss, _ = case
    library, cells = torch_library()
    operands = torch_operands(batch + learnt, range(len(batch), len(batch) + len(learnt)))
    inputs, parameters = operands[:len(batch)], operands[len(batch):]
    if loss is lstm:
        cells["lstm"] = torch.nn.LSTM(batch[0][-1], learnt[1][1], device=DEVICE)
        parameters = [*cells["lstm"].parameters(), *parameters[3:]]
        program = lambda: lstm(library, *inputs, None, None, None, *parameters[-2:])
    else:
        program = lambda: loss(library, *inputs, *parameters)
    torch.backends.cuda.matmul.allow_tf32 = precision(case) == "TF32"
    if precision(case) == "BF16":
        full = program

        def program():
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return full()

    if compiled:
        torch._dynamo.reset()
        program = torch.compile(program, dynamic=False)
    options = {"lr": RATE[solver], "fused": True} | ({"capturable": True} if solver == "Adam" else {})
    optimizer = (torch.optim.Adam if solver == "Adam" else torch.optim.SGD)(parameters, **options)
    if loss is weighed:
        parameters[0].grad = inputs[0]
        return optimizer.step, inputs

    def step():
        optimizer.zero_grad(set_to_none=True)
        out = program()
        out.backward()
        optimizer.step()
        return out.detach()

    return step, inputs


def fed(step, inputs, host):
    def run():
        for to, x in zip(inputs, host):
            to.copy_(x, non_blocking=True)
        return step()

    return run


def torch_program(case, who):
    """The call that is timed. The update alone has nothing to compile, and steps in reduced precision are timed compiled alone."""
    if (case[5] is weighed) if who == COMPILED else precision(case):
        return None
    step, inputs = torch_step(case, who == COMPILED)
    if who != "eager":
        step = captured(step)
    host = [x.cpu() for x in inputs] if case[6] else None
    if case[6] == "pinned":
        host = [x.pin_memory() for x in host]
    return fed(step, inputs, host) if host else step


def compile_torch(pattern, k):
    """Compiles a step, and so fills Inductor's cache."""
    case = selected(pattern)[k]
    if case[5] is not weighed:
        torch_step(case, True)[0]()


# JAX


def jax_library():
    import jax
    import jax.numpy as jnp

    library = Jax()

    def lstm(x, wx, wh, b):
        hidden = wh.shape[0]

        def cell(state, gates):
            h, c = state
            keep, add, show, new = jnp.split(gates + h @ wh, 4, 1)
            c = jax.nn.sigmoid(keep) * c + jax.nn.sigmoid(add) * jnp.tanh(new)
            return (jax.nn.sigmoid(show) * jnp.tanh(c), c), None

        zero = jnp.zeros((x.shape[1], hidden), x.dtype)
        return jax.lax.scan(cell, (zero, zero), x @ wx + b)[0][0]

    library.lstm = lstm
    return library


def jax_step(case):
    """A function of the state (parameters, moments, number of the step) and the batch that returns state and loss."""
    import jax
    import jax.numpy as jnp

    _, _, solver, batch, learnt, loss, _ = case
    library, rate = jax_library(), RATE[solver]

    def sgd(state, gradients):
        return ([p - rate * g for p, g in zip(state[0], gradients)],)

    def adam(state, gradients):
        parameters, first, second, t = state
        t = t + 1
        first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradients)]
        a, b = 1 / (1 - 0.9**t), 1 / (1 - 0.999**t)
        return [p - rate * (m * a) / (jnp.sqrt(v * b) + 1e-8) for p, m, v in zip(parameters, first, second)], first, second, t

    update = {"SGD": sgd, "Adam": adam}[solver]

    def step(state, *inputs):
        if loss is weighed:
            return update(state, list(inputs)), jnp.float32(0)
        out, gradients = jax.value_and_grad(lambda p: loss(library, *inputs, *p))(state[0])
        return update(state, gradients), out

    return jax.jit(step, donate_argnums=0)


def jax_state(case, make):
    """The state, of arrays that make gives for a shape."""
    import jax.numpy as jnp

    solver, learnt = case[2], case[4]
    state = ([make(s) for s in learnt],)
    if solver == "Adam":
        state += ([0 * make(s) for s in learnt], [0 * make(s) for s in learnt], jnp.float32(0))
    return state


def compile_jax(case):
    import jax
    import jax.numpy as jnp

    array = lambda s: jax.ShapeDtypeStruct(s[1:], jnp.float32)
    state = ([array(s) for s in case[4]],)
    if case[2] == "Adam":
        state += ([array(s) for s in case[4]], [array(s) for s in case[4]], jax.ShapeDtypeStruct((), jnp.float32))
    with jax.default_matmul_precision(PRECISIONS.get(precision(case), "highest")):
        return jax_step(case).lower(state, *(array(s) for s in case[3])).compile()


def jax_call(step, state, inputs, host):
    """A call of a step, which goes on from the state that the one before left."""
    import jax

    def call():
        nonlocal state
        state, out = step(state, *(jax.device_put(host) if host else inputs))
        return state, out

    return call


def run_jax(path, pattern):
    by, log = jax_settings(), resumed(path)
    import jax.numpy as jnp
    import numpy

    random = numpy.random.default_rng(1)

    def array(kind, *shape):
        if kind == "classes":
            return numpy.eye(shape[1], dtype="f4")[random.integers(shape[1], size=shape[0])]
        x = random.random(shape, dtype="f4") * 2 - 1
        return x / 16 if kind == "weights" else x

    # XLA chooses among kernels by timing them: one program after the other.
    for case in selected(pattern):
        try:
            start = time.monotonic()
            step = compile_jax(case)
            took = time.monotonic() - start
            host = [array(*s) for s in case[3]]
            state = jax_state(case, lambda s: jnp.asarray(array(*s)))
            log.add(key_of(case), by, jax_us(jax_call(step, state, [jnp.asarray(x) for x in host], host if case[6] else None)), took)
        except Exception as e:
            log.failed(key_of(case), by, e)
        step = state = None
    return log.status()


# Both


def main(path, pattern, median_us, seconds):
    return one_after_the_other(__file__, path, pattern, seconds,
                               lambda log, until: run_torch(log, selected(pattern), torch_program, compile_torch, pattern, median_us, until))


if __name__ == "__main__":
    sys.exit(run_jax(*sys.argv[2:]))

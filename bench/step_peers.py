"""Times PyTorch and JAX on training steps; bench/peers.py runs it. A case is one of bench/graph_peers.py with a solver's rule and
rate, the precision of products, and where the batch comes from.

A step is forward, loss, backward and the solver's update, of parameters and a batch on the device. PyTorch eager,
captured as one CUDA graph, and compiled by Inductor and captured, its optimizers fused;
JAX jitted, parameters and moments donated. "Batch from the host" copies it from pinned memory before each step, "batch from pageable
memory" from ordinary memory, which JAX has in both. Method:
that of bench/graph_peers.py. float32 products are of full precision, but where a step names TF32 or BF16: PyTorch's are
then in TF32, or under autocast in BF16, compiled and captured alone; JAX's have that precision by default.
"""

import sys
import time

from graph_peers import (COMPILED, DEVICE, PROGRAMS, Jax, Torch, captured, entropy, jax_settings, jax_us, one_after_the_other,
                         program_of, read, resumed, run_torch, shapes_of, torch_operands)
from log import key_of

PRECISIONS = {"TF32": "tensorfloat32", "BF16": "BF16_BF16_F32"}  # as JAX calls them


def lstm(l, x, classes, *w):
    return entropy(l, l.dense(l.lstm(x, *w[:-2]), w[-2], w[-1]), classes)


def weighed(l, x, w):
    """Its gradient is x: what is timed is the update."""
    return (x * w).sum()


STEPS = PROGRAMS | {"LSTM": lstm, "update": weighed}


def parts_of(case):
    """The loss, and the kinds and shapes of the batch and of what is learnt. An LSTM's first state is 0 everywhere."""
    inputs = [i for i in case["inputs"] if i["kind"] != "zeros"]
    return program_of(case, STEPS), shapes_of(i for i in inputs if not i["whole"]), shapes_of(i for i in inputs if i["whole"])


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

    loss, batch, learnt = parts_of(case)
    library, cells = torch_library()
    operands = torch_operands(batch + learnt, range(len(batch), len(batch) + len(learnt)))
    inputs, parameters = operands[:len(batch)], operands[len(batch):]
    if loss is lstm:
        cells["lstm"] = torch.nn.LSTM(batch[0][-1], learnt[1][1], device=DEVICE)
        parameters = [*cells["lstm"].parameters(), *parameters[3:]]
        program = lambda: lstm(library, *inputs, None, None, None, *parameters[-2:])
    else:
        program = lambda: loss(library, *inputs, *parameters)
    torch.backends.cuda.matmul.allow_tf32 = case.get("precision") == "TF32"
    if case.get("precision") == "BF16":
        full = program

        def program():
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return full()

    if compiled:
        torch._dynamo.reset()
        program = torch.compile(program, dynamic=False)
    adam = case["rule"] == "Adam"
    options = {"lr": case["rate"], "fused": True} | ({"capturable": True} if adam else {})
    optimizer = (torch.optim.Adam if adam else torch.optim.SGD)(parameters, **options)
    if case.get("update_alone"):
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
    if case.get("update_alone" if who == COMPILED else "precision"):
        return None
    step, inputs = torch_step(case, who == COMPILED)
    if who != "eager":
        step = captured(step)
    if not case.get("from_host"):
        return step
    host = [x.cpu() if case.get("pageable") else x.cpu().pin_memory() for x in inputs]
    return fed(step, inputs, host)


def compile_torch(case):
    """Compiles a step, and so fills Inductor's cache."""
    if not case.get("update_alone"):
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

    library, rate, (loss, _, _) = jax_library(), case["rate"], parts_of(case)

    def sgd(state, gradients):
        return ([p - rate * g for p, g in zip(state[0], gradients)],)

    def adam(state, gradients):
        parameters, first, second, t = state
        t = t + 1
        first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradients)]
        a, b = 1 / (1 - 0.9**t), 1 / (1 - 0.999**t)
        return [p - rate * (m * a) / (jnp.sqrt(v * b) + 1e-8) for p, m, v in zip(parameters, first, second)], first, second, t

    update = {"SGD": sgd, "Adam": adam}[case["rule"]]

    def step(state, *inputs):
        if case.get("update_alone"):
            return update(state, list(inputs)), jnp.float32(0)
        out, gradients = jax.value_and_grad(lambda p: loss(library, *inputs, *p))(state[0])
        return update(state, gradients), out

    return jax.jit(step, donate_argnums=0)


def jax_state(case, make):
    """The state, of arrays that make gives for a kind and extents."""
    import jax.numpy as jnp

    _, _, learnt = parts_of(case)
    state = ([make(*s) for s in learnt],)
    if case["rule"] == "Adam":
        state += ([make("zeros", *s[1:]) for s in learnt], [make("zeros", *s[1:]) for s in learnt], jnp.float32(0))
    return state


def compile_jax(case):
    import jax
    import jax.numpy as jnp

    array = lambda _, *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    with jax.default_matmul_precision(PRECISIONS.get(case.get("precision"), "highest")):
        return jax_step(case).lower(jax_state(case, array), *(array(*s) for s in parts_of(case)[1])).compile()


def jax_call(step, state, inputs, host):
    """A call of a step, which goes on from the state that the one before left."""
    import jax

    def call():
        nonlocal state
        state, out = step(state, *(jax.device_put(host) if host else inputs))
        return state, out

    return call


def run_jax(cases, path):
    by, log = jax_settings(), resumed(path)
    import jax.numpy as jnp
    import numpy

    random = numpy.random.default_rng(1)

    def array(kind, *shape):
        if kind == "zeros":
            return numpy.zeros(shape, "f4")
        if kind == "classes":
            return numpy.eye(shape[1], dtype="f4")[random.integers(shape[1], size=shape[0])]
        x = random.random(shape, dtype="f4") * 2 - 1
        return x / 16 if kind == "weights" else x

    # XLA chooses among kernels by timing them: one program after the other.
    for case in read(cases):
        try:
            start = time.monotonic()
            step = compile_jax(case)
            took = time.monotonic() - start
            host = [array(*s) for s in parts_of(case)[1]]
            state = jax_state(case, lambda *s: jnp.asarray(array(*s)))
            log.add(key_of(case), by, jax_us(jax_call(step, state, [jnp.asarray(x) for x in host], host if case.get("from_host") else None)), took)
        except Exception as e:
            log.failed(key_of(case), by, e)
        step = state = None
    return log.status()


# Both


def run(cases, path, median_us, seconds):
    return one_after_the_other(__file__, cases, path, seconds, lambda log, until: run_torch(log, read(cases), torch_program, compile_torch, median_us, until))


if __name__ == "__main__":
    sys.exit(run_jax(*sys.argv[1:]))

"""Times PyTorch on what TestModelTimes, TestAttentionTimes and TestStoredTimes of cudaops/bench time on plans, on a cross-entropy with its gradient, and on a token of GPT-2 124M. It reads
their lines, and takes the shapes from the names there: of attention and stored numbers those in BF16.

	STHENO_TIMES=. go test ./cudaops/bench -run 'TestModelTimes|TestAttentionTimes|TestStoredTimes' -v | tee times.log
	python3 bench/model_peers.py < times.log

Compiled where that is faster than eager, and captured in a graph of consecutive runs on operands that take turns, by the method of bench/timing.py.
"""

import re
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

torch.backends.cuda.matmul.allow_tf32 = False
torch.manual_seed(31)


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, device="cuda", dtype=dtype)


# Each gives, for the words of a name, a function, the shape of its operand, of which several take turns, and otherwise the operand.


def topk(k, _, rows, __, n):
    return (lambda x: torch.topk(x, int(k), dim=-1)), (int(rows), int(n)), ()


def draw(*words):
    rows, n = int(words[-3]), int(words[-1])
    k, p = int(words[1]) if words[0] == "k" else 0, float(words[words.index("p") + 1]) if "p" in words else 1

    def f(x):
        if k == 1:
            return x.argmax(-1)
        if k == 0 and p == 1:
            return torch.multinomial(x.softmax(-1), 1)
        values, at = torch.topk(x, k, dim=-1) if k else x.sort(-1, descending=True)
        q = values.softmax(-1)
        if p < 1:
            q = torch.where(q.cumsum(-1) - q < p, q, 0)
        return at.gather(-1, torch.multinomial(q, 1))

    return f, (rows, n), ()


def vector(k, m, transposed):
    k, m = int(k), int(m)
    v = normal(k)
    return (lambda a: v @ a) if transposed == "true" else (lambda a: a @ v), (k, m) if transposed == "true" else (m, k), ()


def cumsum(*shape):
    shape = [int(s.strip("[]")) for s in shape]
    return (lambda x: x.cumsum(min(len(shape) - 1, 1))), shape, ()


def embedding(_, kind, count, __, rows, ___, width):
    which = torch.randint(int(rows), (int(count),), device="cuda") if kind == "uniform" else torch.full((int(count),), 7, device="cuda")
    return (lambda dy: torch.ops.aten.embedding_dense_backward(dy, which, int(rows), -1, False)), (int(count), int(width)), ()


def loss(rows, classes):
    labels = torch.randint(int(classes), (int(rows),), device="cuda")

    def f(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(F.cross_entropy(x, labels), x)[0]

    return f, (int(rows), int(classes)), ()


def token(position):
    """The largest logit of a token of GPT-2 124M after `position` others, of a cache of 1024."""
    layers, width, heads, context, vocabulary = 12, 768, 12, 1024, 50304
    small = lambda *shape: normal(*shape).mul_(0.02)
    blocks = [
        {"ln1": torch.ones(width, device="cuda"), "ln2": torch.ones(width, device="cuda"), "zero": torch.zeros(width, device="cuda"), "qkv": small(3 * width, width), "qkvb": small(3 * width),
         "proj": small(width, width), "projb": small(width), "fc": small(4 * width, width), "fcb": small(4 * width), "out": small(width, 4 * width), "outb": small(width),
         "k": normal(1, heads, context, width // heads), "v": normal(1, heads, context, width // heads)}
        for _ in range(layers)
    ]
    table, places = small(vocabulary, width), small(context, width)
    at = torch.tensor([int(position)], device="cuda")
    seen = (torch.arange(context, device="cuda") <= at).view(1, 1, 1, context)

    def f(word):
        h = F.embedding(word, table) + places[at]
        for b in blocks:
            q, k, v = F.linear(F.layer_norm(h, (width,), b["ln1"], b["zero"]), b["qkv"], b["qkvb"]).view(3, 1, heads, 1, width // heads)
            b["k"].index_copy_(2, at, k)
            b["v"].index_copy_(2, at, v)
            h = h + F.linear(F.scaled_dot_product_attention(q, b["k"], b["v"], attn_mask=seen).reshape(1, width), b["proj"], b["projb"])
            h = h + F.linear(F.gelu(F.linear(F.layer_norm(h, (width,), b["ln2"], b["zero"]), b["fc"], b["fcb"]), approximate="tanh"), b["out"], b["outb"])
        return F.linear(F.layer_norm(h, (width,), b["ln1"], b["zero"]), table).argmax(-1)

    return f, None, torch.tensor([7], device="cuda")


def attention(*words):
    """Training's forward pass, which writes the logarithm of the sum, or the gradients of one that has run, by cuDNN, the fastest backend in every case."""
    batch, heads, n, dim = (int(words[i]) for i in (-9, -7, -5, -3))
    causal, ready = words[-1] == "true", {}

    def forward(x):
        with torch.enable_grad(), sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            leaves = [t.detach().requires_grad_() for t in x[:3]]
            return F.scaled_dot_product_attention(*leaves, is_causal=causal), leaves

    def gradients(x):
        if x.data_ptr() not in ready:
            ready[x.data_ptr()] = forward(x)
        y, leaves = ready[x.data_ptr()]
        return torch.autograd.grad(y, leaves, x[3], retain_graph=True)

    return (gradients if words[0] == "gradient" else forward), (4, batch, heads, n, dim), ()


def stored(name, shape):
    """Functions of numbers in BF16."""
    rows = torch.bfloat16
    w, b = normal(shape[-1], dtype=rows), normal(shape[-1], dtype=rows)
    return {
        "map": ((lambda x: x[1] * (1 + torch.tanh(x[0]))), (2, *shape), ()),
        "map of one operand": ((lambda x: F.gelu(x, approximate="tanh")), shape, ()),
        "softmax": ((lambda x: x.softmax(-1)), shape, ()),
        "softmax and product": ((lambda x: x[1] * x[0].softmax(-1)), (2, *shape), ()),
        "layer norm": ((lambda x: F.layer_norm(x, shape[-1:], w, b)), shape, ()),
        "sum": ((lambda x: x.sum(-1)), shape, ()),
    }.get(name)


def us(f, shape, word, dtype, captured):
    """Microseconds of a run, in a graph of runs on operands in turns, or launched one by one."""
    bytes_ = dtype.itemsize * torch.Size(shape).numel() if shape else 1 << 40
    copies = min(max(-(-4 * torch.cuda.get_device_properties(0).L2_cache_size // bytes_), 1), 64)
    sets = [normal(*shape, dtype=dtype) for _ in range(copies)] if shape else [word]
    side = torch.cuda.Stream() if captured else torch.cuda.current_stream()
    with torch.cuda.stream(side):
        for x in sets[:3] * 2:
            f(x)
    torch.cuda.synchronize()

    def time(n, groups):
        def run():
            for i in range(n):
                f(sets[i % copies])

        if captured:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                run()
            run = graph.replay
        run()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(groups + 1)]
        events[0].record()
        for e in events[1:]:
            run()
            e.record()
        torch.cuda.synchronize()
        return 1000 * statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])) / n

    one = time(1, 3)
    return time(max(copies, int(min(2000 / one, 200))), 11)


KINDS = {"topk": topk, "draw": draw, "vector": vector, "cumsum": cumsum, "embedding": embedding, "loss": loss, "token": token}


def peer(name):
    """The function of a line, its operand, the operand's type, and whether it is captured and compiled; nothing if there is no peer."""
    words = name.replace(",", "").split()
    if words[0] == "attention":
        return (*attention(*words[1:]), torch.bfloat16, False, False) if "bf16" in words else None
    if words[0] in KINDS:
        return (*KINDS[words[0]](*words[1:]), torch.float32, True, words[0] in ("loss", "token") or words[0] == "draw" and words[-3] in ("1", "8192"))
    m = re.fullmatch(r"(.*) \[([\d ]+)\] BF16", name)
    f = m and stored(m[1], tuple(map(int, m[2].split())))
    return f and (*f, torch.bfloat16, True, True)


def main():
    print(torch.cuda.get_device_name(), torch.__version__)
    names = [(m[1].strip(), float(m[2])) for m in re.finditer(r"_test\.go:\d+: (\S.*?)  +([\d.]+) us", sys.stdin.read())]
    for name, ours in [("loss 8192 50304", 0)] + names + [("token 250", 0)]:
        found = peer(name)
        if not found:
            continue
        f, shape, word, dtype, captured, compiled = found
        best = {}
        for by in ("eager", "compiled")[: 1 + compiled]:
            torch.cuda.empty_cache()
            try:
                best[by] = us(f if by == "eager" else torch.compile(f, dynamic=False), shape, word, dtype, captured)
            except Exception as e:
                print(name, by, type(e).__name__, str(e).splitlines()[0][:100])
        if best:
            by = min(best, key=best.get)
            print(f"{name:60} ours {ours:9.2f}  PyTorch {best[by]:9.2f} {by}  {best}", flush=True)


main()

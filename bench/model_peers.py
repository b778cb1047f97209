"""Times PyTorch on what TestModelTimes of cudaops/bench times on plans, on a cross-entropy with its gradient, and on a token of GPT-2 124M. It reads its lines, and takes the shapes from the names there.

	STHENO_TIMES=. go test ./cudaops/bench -run TestModelTimes -v | tee times.log
	python3 bench/model_peers.py < times.log

Compiled where that is faster than eager, and captured in a graph of consecutive runs on operands that take turns, by the method of bench/timing.py.
"""

import re
import statistics
import sys

import torch
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = False
torch.manual_seed(31)


def normal(*shape):
    return torch.randn(*shape, device="cuda")


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


def us(f, shape, word):
    """Microseconds of a run in a graph of runs on operands in turns."""
    bytes_ = 4 * torch.Size(shape).numel() if shape else 1 << 40
    copies = min(max(-(-4 * torch.cuda.get_device_properties(0).L2_cache_size // bytes_), 1), 64)
    sets = [normal(*shape) for _ in range(copies)] if shape else [word]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for x in sets[:3] * 2:
            f(x)
    torch.cuda.synchronize()

    def time(n, groups):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(n):
                f(sets[i % copies])
        graph.replay()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(groups + 1)]
        events[0].record()
        for e in events[1:]:
            graph.replay()
            e.record()
        torch.cuda.synchronize()
        return 1000 * statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])) / n

    one = time(1, 3)
    return time(max(copies, int(min(2000 / one, 200))), 11)


KINDS = {"topk": topk, "draw": draw, "vector": vector, "cumsum": cumsum, "embedding": embedding, "loss": loss, "token": token}


def main():
    print(torch.cuda.get_device_name(), torch.__version__)
    names = [(m[1].strip(), float(m[2])) for m in re.finditer(r"_test\.go:\d+: (\S.*?)  +([\d.]+) us", sys.stdin.read())]
    for name, ours in [("loss 8192 50304", 0)] + names + [("token 250", 0)]:
        words = name.split()
        f, shape, word = KINDS[words[0]](*words[1:])
        best = {}
        for by in ("eager", "compiled"):
            if by == "compiled" and words[0] not in ("loss", "token") and not (words[0] == "draw" and words[-3] in ("1", "8192")):
                continue
            torch.cuda.empty_cache()
            try:
                call = f if by == "eager" else torch.compile(f, dynamic=False)
                best[by] = us(call, shape, word)
            except Exception as e:
                print(name, by, type(e).__name__, str(e).splitlines()[0][:100])
        if best:
            by = min(best, key=best.get)
            print(f"{name:44} ours {ours:9.2f}  PyTorch {best[by]:9.2f} {by}  {best}", flush=True)


main()

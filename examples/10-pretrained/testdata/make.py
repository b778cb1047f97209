"""Trains a GPT-2 of letters in PyTorch, and writes it as Hugging Face's GPT2LMHeadModel is saved, with the logits that PyTorch computes of it.

    python make.py "$(go env GOROOT)/src/testdata/Isaac.Newton-Opticks.txt"

model.safetensors has the weights in F16; logits.safetensors the logits after each letter of SENTENCE, letters by their numbers in ASCII, computed in float32
from the weights of the file. Wants torch, numpy and safetensors.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 128, 64, 48, 3, 2
BATCH, STEPS, RATE = 16, 1500, 5e-3
SENTENCE = "The Rays of Light which come from the Sun"


def new(generator):
    def normal(deviation, *shape):
        return torch.randn(*shape, generator=generator) * deviation

    w = {"wte.weight": normal(0.05, VOCABULARY, WIDTH), "wpe.weight": normal(0.02, CONTEXT, WIDTH)}

    def norm(name):
        w[name + ".weight"], w[name + ".bias"] = torch.ones(WIDTH), torch.zeros(WIDTH)

    def linear(name, inputs, outputs):  # (in, out), as GPT-2's Conv1D stores it
        w[name + ".weight"], w[name + ".bias"] = normal(0.1, inputs, outputs), torch.zeros(outputs)

    for i in range(LAYERS):
        h = f"h.{i}."
        norm(h + "ln_1")
        linear(h + "attn.c_attn", WIDTH, 3 * WIDTH)
        linear(h + "attn.c_proj", WIDTH, WIDTH)
        norm(h + "ln_2")
        linear(h + "mlp.c_fc", WIDTH, 4 * WIDTH)
        linear(h + "mlp.c_proj", 4 * WIDTH, WIDTH)
    norm("ln_f")
    return w


def logits(w, ids):
    def norm(x, name):
        return F.layer_norm(x, (WIDTH,), w[name + ".weight"], w[name + ".bias"])

    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w["wte.weight"][ids] + w["wpe.weight"][: ids.shape[1]]
    for i in range(LAYERS):
        h = f"h.{i}."
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in linear(norm(x, h + "ln_1"), h + "attn.c_attn").chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
        x = x + linear(attended, h + "attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def main(text):
    torch.manual_seed(20261126)
    torch.set_num_threads(1)  # so that sums have one order
    data = torch.tensor([c for c in Path(text).read_bytes() if c < VOCABULARY])
    w = new(torch.default_generator)
    for t in w.values():
        t.requires_grad_()
    solver = torch.optim.Adam(w.values(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(solver, STEPS)
    for step in range(STEPS):
        at = torch.randint(len(data) - CONTEXT - 1, (BATCH, 1)) + torch.arange(CONTEXT + 1)
        lines = data[at]
        loss = F.cross_entropy(logits(w, lines[:, :-1]).flatten(0, 1), lines[:, 1:].flatten())
        solver.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1)
        solver.step()
        schedule.step()
        if step % 250 == 249:
            print(step + 1, loss.item() / 0.6931, "bits a letter", flush=True)

    here = Path(__file__).parent
    with torch.no_grad():
        saved = {"transformer." + name: t.half() for name, t in w.items()}
        for i in range(LAYERS):
            saved[f"transformer.h.{i}.attn.bias"] = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril().view(1, 1, CONTEXT, CONTEXT)  # a buffer
        saved["lm_head.weight"] = saved["transformer.wte.weight"].clone()
        save_file(saved, here / "model.safetensors", metadata={"format": "pt"})
        ids = torch.tensor([list(SENTENCE.encode())])
        rounded = {name: saved["transformer." + name].float() for name in w}
        save_file({"logits": logits(rounded, ids)[0]}, here / "logits.safetensors")


if __name__ == "__main__":
    main(sys.argv[1])

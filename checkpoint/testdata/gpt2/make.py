"""Writes a small model in GPT-2's layout with random weights, and the logits that PyTorch computes with it.

    python make.py FOLDER

FOLDER/f32 has shards with an index, FOLDER/f16.safetensors and FOLDER/bf16.safetensors one file each, and
FOLDER/logits.safetensors the ids and the logits of all three, computed in float32. Wants torch, numpy and safetensors.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 64, 12, 24, 3, 2


def new(generator):
    def normal(scale, *shape):
        return torch.randn(*shape, generator=generator) * scale

    weights = {"wte.weight": normal(0.5, VOCABULARY, WIDTH), "wpe.weight": normal(0.3, CONTEXT, WIDTH)}

    def norm(name):
        weights[name + ".weight"] = 1 + normal(0.2, WIDTH)
        weights[name + ".bias"] = normal(0.2, WIDTH)

    def linear(name, inputs, outputs):  # (in, out), as GPT-2's Conv1D stores it
        weights[name + ".weight"] = normal(inputs**-0.5, inputs, outputs)
        weights[name + ".bias"] = normal(0.2, outputs)

    for i in range(LAYERS):
        h = f"h.{i}."
        norm(h + "ln_1")
        weights[h + "attn.bias"] = torch.ones(CONTEXT, CONTEXT).tril().view(1, 1, CONTEXT, CONTEXT)  # a buffer
        linear(h + "attn.c_attn", WIDTH, 3 * WIDTH)
        linear(h + "attn.c_proj", WIDTH, WIDTH)
        norm(h + "ln_2")
        linear(h + "mlp.c_fc", WIDTH, 4 * WIDTH)
        linear(h + "mlp.c_proj", 4 * WIDTH, WIDTH)
    norm("ln_f")
    return weights


def logits(weights, ids):
    w = {name: t.float() for name, t in weights.items()}

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


def main(folder):
    generator = torch.Generator().manual_seed(20261123)
    weights = new(generator)
    ids = torch.randint(VOCABULARY, (2, CONTEXT - 2), generator=generator)
    (folder / "f32").mkdir(parents=True, exist_ok=True)
    of = {}
    names = sorted(weights)
    for i, part in enumerate([names[: len(names) // 2], names[len(names) // 2 :]]):
        shard = f"model-{i + 1:05}-of-00002.safetensors"
        save_file({name: weights[name] for name in part}, folder / "f32" / shard, metadata={"format": "pt"})
        of |= dict.fromkeys(part, shard)
    index = {"metadata": {"total_size": 4 * sum(t.numel() for t in weights.values())}, "weight_map": of}
    (folder / "f32" / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")

    results = {"ids": ids, "f32": logits(weights, ids)}
    for name, dtype in {"f16": torch.float16, "bf16": torch.bfloat16}.items():
        rounded = {k: t.to(torch.bool if k.endswith("attn.bias") else dtype) for k, t in weights.items()}
        results[name] = logits(rounded, ids)
        whole = {"transformer." + k: t for k, t in rounded.items()}  # as a model with a head is saved
        whole["lm_head.weight"] = rounded["wte.weight"].clone()
        save_file(whole, folder / (name + ".safetensors"), metadata={"format": "pt"})
    save_file(results, folder / "logits.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

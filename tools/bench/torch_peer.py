#!/usr/bin/env python3
"""The PyTorch side of against_torch.py: one rank of FSDP2 training of a Llama-shaped model on CPUs over gloo.

Started once per rank by against_torch.py with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set and one argument: a
JSON file with the settings below. Rank 0 prints one line "RESULT {...}" with the seconds of every measured step.

    hidden, layers, heads, intermediate, vocab   dims; head_dim is hidden / heads, all heads have their own keys
    sequence, micro                              tokens per sequence, sequences per rank
    data                                         file of uint16 tokens
    precision                                    "fp32" or "bf16" (parameters gathered in bf16, reduced in fp32)
    adamw                                        "fused" or "foreach"
    threads                                      intra-op threads per rank; 0 keeps PyTorch's default
    compile                                      torch.compile each block
    warmup, steps, lr
"""
import json
import os
import statistics
import sys
import time

try:
    import numpy
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    import torch.nn.functional as F
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
except ModuleNotFoundError as missing:
    sys.exit(f"torch_peer.py: needs the Python package {missing.name}: {sys.executable} -m pip install {missing.name}")


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


def rope_tables(length, head_dim, theta=10000.0):
    frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angle = torch.outer(torch.arange(length, dtype=torch.float32), frequency)
    return torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Block(nn.Module):
    """Pre-norm attention and SwiGLU, no biases."""

    def __init__(self, s):
        super().__init__()
        d, i = s["hidden"], s["intermediate"]
        self.heads = s["heads"]
        self.attention_norm, self.mlp_norm = RMSNorm(d), RMSNorm(d)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.gate_up = nn.Linear(d, 2 * i, bias=False)
        self.down = nn.Linear(i, d, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2)
                   for y in self.qkv(self.attention_norm(x)).split(d, -1))
        cos, sin = cos.to(q.dtype), sin.to(q.dtype)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embedding = nn.Embedding(s["vocab"], s["hidden"])
        self.blocks = nn.ModuleList(Block(s) for _ in range(s["layers"]))
        self.norm = RMSNorm(s["hidden"])
        self.head = nn.Linear(s["hidden"], s["vocab"], bias=False)
        self.rope = rope_tables(s["sequence"], s["hidden"] // s["heads"])
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, *self.rope)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def build(s):
    torch.manual_seed(0)
    model = Llama(s)
    count = sum(p.numel() for p in model.parameters())
    if s["compile"]:
        for block in model.blocks:
            block.compile()
    half = s["precision"] == "bf16"
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if half \
        else MixedPrecisionPolicy()
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    adamw = {"fused": True} if s["adamw"] == "fused" else {"foreach": True}
    optimizer = torch.optim.AdamW(model.parameters(), lr=s["lr"], betas=(0.9, 0.95), weight_decay=0.1, **adamw)
    return model, optimizer, count


def batches(s, rank, ranks):
    """Consecutive windows of the token file, a different one for every rank and step."""
    tokens = numpy.memmap(s["data"], dtype=numpy.uint16, mode="r")
    micro, length = s["micro"], s["sequence"]
    windows = (len(tokens) - 1) // length
    index = rank * micro
    while True:
        rows = [(index + row) % windows * length for row in range(micro)]
        chunk = numpy.stack([tokens[r:r + length + 1] for r in rows]).astype(numpy.int64)
        index += ranks * micro
        yield torch.from_numpy(chunk[:, :-1].copy()), torch.from_numpy(chunk[:, 1:].copy())


def peak_resident():
    """Bytes: the VmHWM line of /proc/self/status."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return 0


def pin(rank, ranks, threads):
    """One thread per rank gets a core of its own where there are enough, as mpirun --bind-to core gives ztrain."""
    cores = sorted(os.sched_getaffinity(0))
    if threads == 1 and len(cores) >= ranks:
        os.sched_setaffinity(0, {cores[rank]})


def train(s, rank, ranks):
    model, optimizer, count = build(s)
    source = batches(s, rank, ranks)
    seconds, loss = [], None
    for step in range(s["warmup"] + s["steps"]):
        dist.barrier()
        start = time.perf_counter()
        tokens, targets = next(source)
        loss = model(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        dist.barrier()
        if step >= s["warmup"]:
            seconds.append(time.perf_counter() - start)
    facts = torch.tensor([loss.item(), float(peak_resident())], dtype=torch.float64)
    everyone = [torch.zeros_like(facts) for _ in range(ranks)]
    dist.all_gather(everyone, facts)
    return {"parameters": count, "seconds": seconds, "loss": statistics.mean(e[0].item() for e in everyone),
            "peak_bytes": [int(e[1].item()) for e in everyone], "threads": torch.get_num_threads(),
            "torch": torch.__version__}


def main():
    with open(sys.argv[1]) as file:
        s = json.load(file)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    pin(rank, ranks, s["threads"])
    if s["threads"] > 0:
        torch.set_num_threads(s["threads"])
    dist.init_process_group("gloo")
    result = train(s, rank, ranks)
    if rank == 0:
        print("RESULT " + json.dumps(result), flush=True)
    dist.barrier()
    # gloo's threads can abort while the interpreter takes itself down; nothing is left to save.
    os._exit(0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The model of a `ztrain bench` report in PyTorch, on the same device: the same dims, batch and dtypes of the states.

    ztrain bench inputs/bench_0.5b.toml --json ours.json
    tools/bench/torch_gpu_peer.py ours.json [--json theirs.json]

Plain modules, scaled_dot_product_attention (FlashAttention on GPUs), torch.compile, fused AdamW, clipping at 1.0. States
in fp32 are trained under bf16 autocast; where the report says that master weights are bf16, everything is bf16.
MFU is by the report's FLOPs per token and peak. Where memory ends, blocks are checkpointed (--checkpoint does so at once).
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from torch.utils.checkpoint import checkpoint
except ModuleNotFoundError as missing:
    sys.exit(f"torch_gpu_peer.py: needs the Python package {missing.name}: {sys.executable} -m pip install {missing.name}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("report", type=pathlib.Path, help="what `ztrain bench --json` wrote")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--steps", type=int, default=10)
    add("--warmup", type=int, default=3)
    add("--no-compile", action="store_true")
    add("--checkpoint", action="store_true", help="recompute each block in backward")
    add("--json", type=pathlib.Path, help="also write the numbers here")
    return parser.parse_args()


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Block(nn.Module):
    """Pre-norm attention with grouped queries, and SwiGLU. What shares an input is one product."""

    def __init__(self, m):
        super().__init__()
        d, i = m["hidden_size"], m["intermediate_size"]
        self.head_dim = m["head_dim"]
        self.heads, self.kv_heads = m["num_attention_heads"], m["num_key_value_heads"]
        self.attention_norm, self.mlp_norm = (RMSNorm(d, m["rms_norm_eps"]) for _ in range(2))
        self.qkv = nn.Linear(d, (self.heads + 2 * self.kv_heads) * self.head_dim, bias=m["attention_bias"])
        self.out = nn.Linear(self.heads * self.head_dim, d, bias=False)
        self.gate_up = nn.Linear(d, 2 * i, bias=False)
        self.down = nn.Linear(i, d, bias=False)

    def forward(self, x, cos, sin):
        rows, tokens, _ = x.shape
        y = self.qkv(self.attention_norm(x)).view(rows, tokens, -1, self.head_dim).transpose(1, 2)
        q, k, v = y.split((self.heads, self.kv_heads, self.kv_heads), 1)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True,
                                           enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(y.transpose(1, 2).reshape(rows, tokens, -1))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, m, sequence, checkpointed):
        super().__init__()
        self.checkpointed = checkpointed
        self.embedding = nn.Embedding(m["vocab_size"], m["hidden_size"])
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["num_hidden_layers"]))
        self.norm = RMSNorm(m["hidden_size"], m["rms_norm_eps"])
        self.head = nn.Linear(m["hidden_size"], m["vocab_size"], bias=False)
        if m["tie_word_embeddings"]:
            self.head.weight = self.embedding.weight
        frequency = m["rope_theta"] ** (-torch.arange(0, m["head_dim"], 2) / m["head_dim"])
        angle = torch.outer(torch.arange(sequence), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos().bfloat16())
        self.register_buffer("sin", angle.sin().bfloat16())
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.embedding(tokens).bfloat16()
        for block in self.blocks:
            x = checkpoint(block, x, self.cos, self.sin, use_reentrant=False) if self.checkpointed \
                else block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Trainer:
    """One batch of random tokens, again and again, as the report's."""

    def __init__(self, report, arguments, checkpointed):
        self.report, self.device = report, torch.device(arguments.device)
        torch.manual_seed(0)
        self.pure = report["state"]["master"] == "bf16"
        with self.device:
            self.model = Model(report["model"], report["sequence"], checkpointed)
        if self.pure:
            self.model.bfloat16()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                           fused=True)
        self.loss_of = self.model if arguments.no_compile else torch.compile(self.model)
        shape = (report["accumulation"], report["micro"], report["sequence"] + 1)
        self.batch = torch.randint(report["model"]["vocab_size"], shape, device=self.device)

    def step(self):
        for window in self.batch:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=not self.pure):
                loss = self.loss_of(window[:, :-1], window[:, 1:]) / len(self.batch)
            loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def timed_step(self):
        self.synchronize()
        start = time.perf_counter()
        loss = self.step()
        self.synchronize()
        return time.perf_counter() - start, loss.item() * len(self.batch)

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def train(report, arguments, checkpointed):
    if arguments.device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    trainer = Trainer(report, arguments, checkpointed)
    for _ in range(arguments.warmup):
        trainer.timed_step()
    steps = [trainer.timed_step() for _ in range(arguments.steps)]
    return {"seconds": [seconds for seconds, _ in steps], "loss": steps[-1][1], "checkpointed": checkpointed,
            "parameters": sum(p.numel() for p in trainer.model.parameters())}


def with_less_memory(report, arguments):
    """The blocks are checkpointed where the report's deck does it, or where memory ends otherwise."""
    if not arguments.checkpoint and report["state"]["recompute"] == "none":
        try:
            return train(report, arguments, False)
        except torch.cuda.OutOfMemoryError:
            print("out of memory: once more, with checkpointed blocks", flush=True)
    return train(report, arguments, True)


def main():
    arguments = parse_arguments()
    if arguments.steps < 1 or arguments.warmup < 0:
        sys.exit("torch_gpu_peer.py: --steps is at least 1, --warmup at least 0")
    try:
        report = json.loads(arguments.report.read_text())
        if report["ranks"] != 1:
            sys.exit("torch_gpu_peer.py: the report is of several ranks, and this is one process")
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"torch_gpu_peer.py: {arguments.report} is no report of ztrain bench: {error!r}")
    result = with_less_memory(report, arguments)
    median = statistics.median_high(result["seconds"])
    speed = report["tokens_per_step"] / median
    flops = speed * report["flops_per_token"] / 1e12
    peak = report["peak"]["tflops"]
    cuda = arguments.device.startswith("cuda")
    result.update(torch=torch.__version__, compiled=not arguments.no_compile, median_seconds=median,
                  tokens_per_s=speed, tflops=flops, mfu=flops / peak if peak else None,
                  ztrain_over_torch=report["tokens_per_s"] / speed,
                  peak_bytes=torch.cuda.max_memory_allocated() if cuda else None,
                  device=torch.cuda.get_device_name() if cuda else "CPU")
    print(f"PyTorch {result['torch']} on {result['device']}, {result['parameters'] / 1e6:.1f}M parameters"
          f"{'' if arguments.no_compile else ', compiled'}{', checkpointed blocks' if result['checkpointed'] else ''}")
    print(f"tokens/s {speed:.1f}, step {1e3 * median:.3f} ms ({1e3 * min(result['seconds']):.3f} to "
          f"{1e3 * max(result['seconds']):.3f}), {flops:.3g} TFLOP/s, "
          f"MFU {100 * result['mfu']:.1f}%" if peak else
          f"tokens/s {speed:.1f}, step {1e3 * median:.3f} ms, {flops:.3g} TFLOP/s, MFU not known")
    if cuda:
        print(f"peak memory {result['peak_bytes'] / 2**30:.2f} GiB allocated")
    print(f"loss {result['loss']:.4f}\nztrain over PyTorch: {result['ztrain_over_torch']:.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

"""A small GPT with DDP: AdamW, gradients accumulated under no_sync, clipping, a cosine rate.

    torchrun --nproc-per-node 2 ddp_gpt.py

It learns to write Python, character by character, from the source of argparse.
"""

import argparse
import contextlib
import inspect
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.attention(self.norm1(x)).split(width, dim=2)
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in (q, k, v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, length, width, heads, layers):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight  # tied
        self.apply(self._initialize)

    @staticmethod
    def _initialize(module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens, targets):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def configure_optimizer(model, lr, weight_decay):
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def learning_rate(step, args):
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    share = (step - args.warmup) / max(1, args.steps - args.warmup)
    return args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * share)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--accumulate", type=int, default=2, help="batches per step")
    parser.add_argument("--batch-size", type=int, default=8, help="per process")
    parser.add_argument("--length", type=int, default=32, help="characters of a sequence")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=5, help="steps")
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--log-interval", type=int, default=10, help="steps between lines")
    args = parser.parse_args()

    use_cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_cuda else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = f"cuda:{os.environ['LOCAL_RANK']}" if use_cuda else "cpu"
    is_master = rank == 0
    torch.manual_seed(1337 + rank)  # all ranks have the weights of rank 0; batches differ

    text = inspect.getsource(argparse)
    alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
    corpus = torch.tensor([alphabet[character] for character in text])

    def get_batch():
        starts = torch.randint(len(corpus) - args.length, (args.batch_size,)).tolist()
        tokens = torch.stack([corpus[start : start + args.length] for start in starts])
        targets = torch.stack([corpus[start + 1 : start + 1 + args.length] for start in starts])
        return tokens.to(device), targets.to(device)

    raw_model = GPT(len(alphabet), args.length, args.width, heads=4, layers=2).to(device)
    optimizer = configure_optimizer(raw_model, args.lr, weight_decay=0.1)
    model = DDP(raw_model)
    if is_master:
        batch = world_size * args.accumulate * args.batch_size
        count = sum(p.numel() for p in model.parameters())
        print(f"{count:,} parameters, batches of {batch}", flush=True)

    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        total = torch.zeros((), device=device)
        for micro_step in range(args.accumulate):
            is_last = micro_step == args.accumulate - 1
            with contextlib.nullcontext() if is_last else model.no_sync():
                loss = model(*get_batch()) / args.accumulate
                loss.backward()
            total += loss.detach()
        norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % args.log_interval == 0 or step == args.steps - 1:
            dist.all_reduce(total, op=dist.ReduceOp.AVG if use_cuda else dist.ReduceOp.SUM)
            mean = total.item() if use_cuda else total.item() / world_size
            if is_master:
                print(f"step {step}: loss {mean:.6f}, norm {norm:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

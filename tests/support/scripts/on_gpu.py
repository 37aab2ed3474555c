"""Trains on a device, as the name of a case says; tests/gpu compares it with plain PyTorch.

python on_gpu.py FOLDER CASE DEVICE: each worker writes what the case returns to FOLDER/RANK.pt.
DEVICE may be `own`: a GPU for each worker; or `pretend` (`tests.support.pretend_gpu`).
"""

import runpy
import sys
from pathlib import Path

import torch
from torch import nn

import outpace

STEPS = 5


def net(device):
    torch.manual_seed(3)  # on the CPU, so that all devices begin alike
    with torch.device("cpu"):
        layers = nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)
    return nn.Sequential(*layers).to(device)


def batch(step, rank, device):
    generator = torch.Generator("cpu").manual_seed(100 * step + rank)
    inputs = torch.randn(16, 6, generator=generator, device="cpu")
    return inputs.to(device), inputs.sum(dim=1).remainder(3).long().to(device)


def loss_of(model, step, rank, device):
    inputs, targets = batch(step, rank, device)
    return nn.functional.cross_entropy(model(inputs), targets)


def parameters_of(model):
    return [p.detach().cpu().clone() for p in model.parameters()]


def _trained(attach, device, rank, make, steps=STEPS):
    """Return the gradients of all steps, and the parameters after them."""
    model = net(device)
    model, optimizer = attach(model, make(model.parameters()))
    gradients = []
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step, rank, device).backward()
        gradients += [p.grad.detach().cpu().clone() for p in model.parameters()]
        optimizer.step()
    return {"gradients": gradients, "model": model}


def sgd(attach, device, rank):
    return _trained(attach, device, rank, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))


def plain_sgd(attach, device, rank):
    return _trained(attach, device, rank, lambda p: torch.optim.SGD(p, lr=0.1), steps=12)


def adamw(attach, device, rank):
    return _trained(attach, device, rank, lambda p: torch.optim.AdamW(p, lr=0.01))


def fused(attach, device, rank):
    return _trained(attach, device, rank, lambda p: torch.optim.AdamW(p, lr=0.01, fused=True))


def scaled(attach, device, rank):
    """Train with autocast and GradScaler, whose step number 2 is skipped."""
    kind = torch.device(device).type
    model = net(device)
    model, optimizer = attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
    scaler = torch.amp.GradScaler(kind, init_scale=256.0)
    scales = []
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast(kind, dtype=torch.bfloat16):
            loss = loss_of(model, step, rank, device)
        scaler.scale(loss * (float("inf") if step == 2 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return {"gradients": [torch.tensor(scales)], "model": model}


def untouched(attach, device, rank):
    """Train on the CPU; Outpace must not begin to use a GPU."""
    found = _trained(attach, "cpu", rank, lambda p: torch.optim.SGD(p, lr=0.1))
    return {**found, "gradients": [torch.tensor(torch.cuda.is_initialized())]}


def no_room(attach, device, rank):
    """Request more memory in worker 1 than its GPU has."""
    model = net(device)
    model, optimizer = attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(STEPS):
        if step == 2 and rank == 1:
            if device == "cpu":  # as torch says it of a GPU
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 TiB")
            torch.empty(1 << 46, dtype=torch.uint8, device=device)
        optimizer.zero_grad()
        loss_of(model, step, rank, device).backward()
        optimizer.step()
    return {"gradients": [], "model": model}


def kept(attach, device, rank):
    """Train with random numbers on the device (dropout, noise of inputs) and with a sampler."""
    torch.manual_seed(5 + rank)
    inputs = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(dim=1).remainder(3).long())
    sampler = outpace.sampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.4), nn.Linear(8, 3)).to(device)
    model, optimizer = attach(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for epoch in range(sampler.epoch, 3):
        sampler.set_epoch(epoch)
        for x, targets in loader:
            optimizer.zero_grad()
            x = x.to(device)
            noisy = x + 0.1 * torch.randn_like(x)
            nn.functional.cross_entropy(model(noisy), targets.to(device)).backward()
            optimizer.step()
    return {"gradients": [], "model": model}


CASES = {
    each.__name__: each for each in (sgd, plain_sgd, adamw, fused, scaled, untouched, no_room, kept)
}


if __name__ == "__main__":
    folder, case, device = sys.argv[1:]
    if device == "pretend":
        runpy.run_path(str(Path(__file__).parents[1] / "pretend_gpu.py"))
        torch.set_default_device(device)  # as scripts do
    if device == "own":
        device = f"cuda:{outpace.rank()}"
    found = CASES[case](outpace.attach, device, outpace.rank())
    outpace.finish()
    tensors = {"gradients": found["gradients"], "parameters": parameters_of(found["model"])}
    torch.save(tensors, Path(folder) / f"{outpace.rank()}.pt")

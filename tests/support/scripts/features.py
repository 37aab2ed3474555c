"""Features of training scripts. `features.py CASE FOLDER` saves the result of one of them.

Each case is a function of `attach`, so that a test can call it without Outpace as well.
"""

from __future__ import annotations

import copy
import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

import outpace

STEPS = 12
State = dict[str, torch.Tensor]


class Net(nn.Module):
    """A little of everything: BatchNorm, tied weights, a frozen and an unused parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(8, 8)
        self.body = nn.Sequential(
            nn.Linear(8, 19), nn.BatchNorm1d(19), nn.ReLU(), nn.Linear(19, 8), nn.Tanh()
        )
        self.unused = nn.Linear(5, 3)
        self.head = nn.Linear(8, 8)
        self.tied = nn.Linear(8, 8, bias=False)
        self.tied.weight = self.head.weight
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tied(torch.relu(self.head(self.body(self.frozen(x)))))


def net(dtype: torch.dtype = torch.float32) -> Net:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    return Net().to(dtype)


def loss_of(model: nn.Module, step: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    numbers = torch.Generator().manual_seed(step)
    x = torch.randn(16, 8, generator=numbers, dtype=dtype)
    return nn.functional.mse_loss(model(x), x.roll(1, 1))


def sgd(attach) -> State:
    """Momentum, weight decay, accumulation, clipping; OneCycleLR, made before, moves both."""
    model = net()
    optimizer = torch.optim.SGD(  # has the frozen and the unused ones, too
        model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=0.01
    )
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, STEPS)
    model, optimizer = attach(model, optimizer)
    for step in range(STEPS):
        for part in range(2):
            (loss_of(model, 2 * step + part) / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return model.state_dict()


def adamw(attach) -> State:
    """Two groups, schedulers before and after, hooks, a closure, copies, unfreezing."""
    model = net()
    bias = [p for n, p in model.named_parameters() if "bias" in n]
    rest = [p for n, p in model.named_parameters() if "bias" not in n]
    groups = [{"params": bias, "weight_decay": 0.0, "lr": 0.02}, {"params": rest}]
    optimizer = torch.optim.AdamW(groups, 0.01, weight_decay=0.1)
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    schedulers = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: np.float64(np.cos(n / 20)))
    ]
    model.frozen.requires_grad_(True)  # it is trained later
    model, optimizer = attach(model, optimizer)
    model.frozen.requires_grad_(False)
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    schedulers.append(torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, len(calls) // 2)
        loss.backward()
        return loss

    for step in range(STEPS):
        assert optimizer.step(closure).item() > 0
        for scheduler in schedulers:
            scheduler.step()
        if step == 4:
            model.frozen.requires_grad_(True)
            model.body[0].requires_grad_(False)
        if step == 6:
            optimizer.load_state_dict(optimizer.state_dict())
            for copied in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
                assert type(copied) is torch.optim.AdamW
                assert copied.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
                copied.step()
    assert calls == ["before", "after"] * STEPS
    return model.state_dict()


def rmsprop(attach) -> State:
    """float64, a loss that decides on the learning rate, what is frozen not in the optimizer."""
    model = net(torch.float64)
    optimizer = torch.optim.RMSprop(
        [p for p in model.parameters() if p.requires_grad], torch.tensor(0.01), momentum=0.5
    )
    model, optimizer = attach(model, optimizer)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.7)
    for step in range(STEPS):
        loss = loss_of(model, step, torch.float64)
        loss.backward()
        optimizer.step()
        scheduler.step(loss.item())
        optimizer.zero_grad(set_to_none=step % 2 == 0)
    return model.state_dict()


def adam(attach) -> State:
    """GradScaler, with an overflow now and then; OneCycleLR moves betas."""
    return _scaled(attach, clip=False)


def adam_clipped(attach) -> State:
    """Train with a gradient scaler, unscale_ and clipping."""
    return _scaled(attach, clip=True)


def _scaled(attach, clip: bool) -> State:
    model = net()
    model, optimizer = attach(model, torch.optim.Adam(model.parameters(), 0.01, amsgrad=clip))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, STEPS)
    scaler = torch.amp.GradScaler("cpu", init_scale=300.0, growth_interval=2)
    for step in range(STEPS):
        loss = loss_of(model, step) * (float("inf") if step in (3, 7) else 1.0)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        optimizer.zero_grad()
    return {**model.state_dict(), "scale": torch.tensor(scaler.get_scale())}


def mine(attach) -> State:
    """An optimizer of the user's own."""
    model = net()
    groups = [{"params": [p], "sign": -1.0 if p.ndim == 1 else 1.0} for p in model.parameters()]
    model, optimizer = attach(model, make(groups))
    for step in range(STEPS):
        loss_of(model, step).backward()
        optimizer.step()
        optimizer.zero_grad()
        optimizer.param_groups[0]["lr"] *= 0.9
    return model.state_dict()


class Signed(torch.optim.Optimizer):
    """Some groups are stepped twice as far."""

    def __init__(self, groups, lr: float) -> None:
        super().__init__(groups, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"] * (1.5 - group["sign"] / 2))


def make(groups) -> torch.optim.Optimizer:
    return Signed(groups, lr=0.1)


CASES = {f.__name__: f for f in (sgd, adamw, rmsprop, adam, adam_clipped, mine)}

if __name__ == "__main__":
    warnings.simplefilter("error")
    case, folder = sys.argv[1:]
    state = CASES[case](outpace.attach)
    outpace.finish()
    if outpace.rank() == 0:
        torch.save(state, Path(folder) / "state.pt")

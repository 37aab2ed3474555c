"""Features of training scripts. `features.py CASE FOLDER` saves the result of one of them.

Each case is a function of `attach`, so that a test can call it without Outpace as well.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils import prune
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

import outpace

STEPS = 12
State = dict[str, torch.Tensor]


class Net(nn.Module):
    """A model with BatchNorm, tied weights, a frozen and an unused parameter."""

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
    """Train with momentum, weight decay, accumulation, clipping and an earlier made OneCycleLR."""
    model = net()
    optimizer = torch.optim.SGD(  # also has the frozen and the unused parameters
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


def adam_clipped(attach) -> State:
    """Train with GradScaler, unscale_, clipping, accumulation and some overflows; OneCycleLR
    changes betas.
    """
    model = net()
    model, optimizer = attach(model, torch.optim.Adam(model.parameters(), 0.01, amsgrad=True))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, STEPS)
    scaler = torch.amp.GradScaler("cpu", init_scale=300.0, growth_interval=2)
    for step in range(STEPS):
        for part in range(2):
            loss = loss_of(model, 2 * step + part) * (float("inf") if step in (3, 7) else 0.5)
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        optimizer.zero_grad()
    return {**model.state_dict(), "scale": torch.tensor(scaler.get_scale())}


class Unusual(nn.Module):
    """Weights that are computed, a layer that is computed twice, and parameters without rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        self.scale, self.empty = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.empty(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = checkpoint(self.first, x.requires_grad_(), use_reentrant=True)
        x = nn.functional.dropout(checkpoint(self.spectral, x, use_reentrant=False), 0.2)
        return self.normed(x) * self.scale


def unusual(attach) -> State:
    """Settings that change, hooks, an average, gradients that pile up."""
    torch.manual_seed(1)
    model = Unusual()
    model, optimizer = attach(model, torch.optim.AdamW(model.parameters(), 0.05))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_value_(model.parameters(), 0.1))
    optimizer.register_step_post_hook(lambda *_: average.update_parameters(model))
    norms = []
    for step in range(STEPS):
        if step % 3 == 0:
            optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
        scheduler.step()
        norms.append(model.normed.bias.grad.norm())
        if step == 6:
            optimizer.param_groups[0].update(weight_decay=0.3, maximize=True)
    return {**model.state_dict(prefix="model."), **average.state_dict(), "n": torch.stack(norms)}


class Related(nn.Module):
    """`target` follows `online`; the optimizer has only the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.online, self.target, self.spare = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.target.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.spare(torch.tanh(self.online(x))) - self.target(x)


def changed(attach) -> State:
    """The model changes after `attach`: weights are tied and pruned, a layer is frozen and thawed.

    A closure computes the loss, on which a schedule depends.
    """
    torch.manual_seed(1)
    model = Related()
    followed = [*zip(model.target.parameters(), model.online.parameters(), strict=True)]
    trained = [*model.online.parameters(), *model.spare.parameters()]
    model, optimizer = attach(model, torch.optim.SGD(trained, 0.1, momentum=0.9, weight_decay=0.1))
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    for step in range(STEPS):
        if step == 2:
            model.spare.weight = model.online.weight
        if step == 4:
            prune.l1_unstructured(model.online, "weight", 0.5)
        model.online.bias.requires_grad_(not 6 <= step < 9)

        def closure(step=step):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            loss = loss_of(model, step)
            loss.backward()
            return loss

        schedule.step(optimizer.step(closure).item())
        with torch.no_grad():
            for target, online in followed:
                target.lerp_(online, 0.2)
    return {**model.state_dict(), "lr": torch.tensor(optimizer.param_groups[0]["lr"])}


def compiled(attach) -> State:
    """Train a compiled model with a learning rate in a tensor."""
    torch.manual_seed(1)
    model = torch.compile(nn.Linear(8, 8), backend="aot_eager")
    model, optimizer = attach(model, torch.optim.AdamW(model.parameters(), torch.tensor(0.05)))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
        scheduler.step()
    return model.state_dict()


def adapters(attach) -> State:
    """Train adapters of `peft` with an optimizer that also has the frozen parameters."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
    lora = LoraConfig(target_modules=["0", "2"], r=2, init_lora_weights="gaussian")
    model = get_peft_model(layers, lora)
    model, optimizer = attach(model, torch.optim.AdamW(model.parameters(), 0.05))
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    return model.state_dict()


CASES = {f.__name__: f for f in (sgd, adam_clipped, unusual, changed, compiled, adapters)}

if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "Using .torch.compile")
    case, folder = sys.argv[1:]
    state = CASES[case](outpace.attach)
    outpace.finish()
    if outpace.rank() == 0:
        torch.save(state, Path(folder) / "state.pt")

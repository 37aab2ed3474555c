"""Unusual actions of DDP scripts. `ddp_cases.py CASE...`; rank 0 prints losses and a digest.

A script as users write it: except for the case `attaches`, it does not use Outpace.
"""

import copy
import datetime
import hashlib
import io
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CASES = {}
STEPS = 6


def case(function):
    CASES[function.__name__] = function
    return function


class Net(nn.Module):
    """A model with buffers; `spare`: also with a branch and a parameter that is never used."""

    def __init__(self, spare=False):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.branch = nn.Linear(8, 8) if spare else None
        self.never = nn.Parameter(torch.ones(3)) if spare else None
        self.last = nn.Linear(8, 3)

    def forward(self, x, branch=False):
        x = torch.tanh(self.norm(self.first(x)))
        return self.last(self.branch(x) if branch else x)


def rank():
    return dist.get_rank()


def batch(step):
    numbers = torch.Generator().manual_seed(1000 * step + rank())
    x = torch.randn(8, 6, generator=numbers)
    return x, x[:, :3].argmax(dim=1)


def say(*words):
    if rank() == 0:
        print(*words, flush=True)  # noqa: T201


def digest(model):
    whole = hashlib.sha256()
    for tensor in model.state_dict().values():
        whole.update(tensor.contiguous().numpy().tobytes())
    return whole.hexdigest()[:16]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def loss_of(model, step, **more):
    x, y = batch(step)
    return nn.functional.cross_entropy(model(x, **more), y)


def train(model, optimizer, steps=STEPS, accumulate=1, **more):
    for step in range(steps):
        for part in range(accumulate):
            loss = loss_of(model, step * accumulate + part, **more)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        say(f"step {step}: loss {loss.item():.6f}")


def end(model):
    say("digest", digest(model))


@case
def unused():
    model = DDP(Net(spare=True), find_unused_parameters=True)
    optimizer = sgd(model.parameters())
    for step in range(STEPS):
        loss = loss_of(model, step, branch=step % 2 == rank())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        say(f"step {step}: loss {loss.item():.6f}")
    end(model)


@case
def bucket_view():
    model = DDP(Net(), gradient_as_bucket_view=True, bucket_cap_mb=0.0001)
    train(model, sgd(model.parameters()))
    end(model)


@case
def static_graph():
    model = DDP(Net(), static_graph=True)
    train(model, sgd(model.parameters()))
    end(model)


@case
def join():
    model = DDP(Net(), broadcast_buffers=False)
    optimizer = sgd(model.parameters())
    with model.join():
        train(model, optimizer, steps=4 + rank())
    end(model)


@case
def two_models():
    one, two = DDP(Net()), DDP(Net())
    optimizers = sgd(one.parameters()), sgd(two.parameters())
    for step in range(STEPS):
        for model, optimizer in zip((one, two), optimizers, strict=True):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            optimizer.step()
        say(f"step {step}: loss {loss.item():.6f}")
    end(one)
    end(two)


@case
def two_optimizers():
    model = DDP(Net())
    optimizers = sgd(model.module.first.parameters()), sgd(model.module.last.parameters())
    for step in range(STEPS):
        loss = loss_of(model, step)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        say(f"step {step}: loss {loss.item():.6f}")
    end(model)


@case
def zero():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(Net())
    train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01))
    end(model)


@case
def scaler():
    model = DDP(Net())
    optimizer = sgd(model.parameters())
    scaling = torch.amp.GradScaler("cpu", init_scale=16.0)
    for step in range(STEPS):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, step)
        if step == 3:
            loss = loss * float("inf")
        scaling.scale(loss).backward()
        scaling.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaling.step(optimizer)
        scaling.update()
        optimizer.zero_grad()
        say(f"step {step}: loss {loss.item():.6f}")
    end(model)


def closures(model, optimizer):
    for step in range(STEPS):

        def evaluate(step=step):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            return loss

        say(f"step {step}: loss {optimizer.step(evaluate).item():.6f}")


@case
def closure():
    model = DDP(Net())
    closures(model, sgd(model.parameters()))
    end(model)


@case
def evaluates():
    model = DDP(Net())
    optimizer = sgd(model.parameters())
    for epoch in range(2):
        model.train()
        train(model, optimizer, steps=3)
        model.eval()
        with torch.no_grad():
            through = loss_of(model, 77)
            if rank() == 0:
                say(f"bare {loss_of(model.module, 78).item():.6f}")
        dist.all_reduce(through)
        say(f"epoch {epoch}: {through.item():.6f}")
    end(model)


@case
def by_hand():
    """Train without DDP: the script averages gradients itself."""
    model = Net()
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    optimizer = sgd(model.parameters())
    for step in range(STEPS):
        loss = loss_of(model, step)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        optimizer.zero_grad()
        say(f"step {step}: loss {loss.item():.6f}")
    end(model)


@case
def differentiable():
    """Train with a collective that is part of the backward pass."""
    import torch.distributed.nn

    model = DDP(Net())
    optimizer = sgd(model.parameters())
    for step in range(STEPS):
        x, y = batch(step)
        output = torch.distributed.nn.all_reduce(model(x)) / dist.get_world_size()
        loss = nn.functional.cross_entropy(output, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        say(f"step {step}: loss {loss.item():.6f}")
    end(model)


@case
def averages():
    """Train with a running average, parameters that DDP ignores, and an earlier model."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    net = Net()
    DDP._set_params_and_buffers_to_ignore_for_model(net, ["last.bias", "norm.running_mean"])
    model = DDP(net)
    optimizer = sgd(model.parameters())
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    for step in range(STEPS):
        train(model, optimizer, steps=1)
        average.update_parameters(model)
        if step == 1:
            best = copy.deepcopy(model.state_dict())
        if step == 3:
            model.load_state_dict(best)
            torch.save(model.module, io.BytesIO())
    end(average.eval())
    end(model)


@case
def compressed():
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
        PowerSGDState,
        powerSGD_hook,
    )

    model = DDP(Net())
    model.register_comm_hook(PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook)
    train(model, sgd(model.parameters()))
    end(model)


@case
def passes():
    """Train with two passes before a backward pass, a second one, a penalty and limited weights."""
    model = DDP(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        x, other = batch(step)[0].requires_grad_(), batch(step + 100)[0]
        (slope,) = torch.autograd.grad(model.module(x).sum(), x, create_graph=True)
        (nn.functional.mse_loss(model(x), model(other)) + slope.square().mean()).backward()
        loss_of(model, step).backward()
        optimizer.step()
        with torch.no_grad():
            for p in model.parameters():
                p.clamp_(-0.2, 0.2)
    end(model)


@case
def frozen():
    """Freeze a layer for a while, and train another one only later, in a new wrapper."""
    net = Net()
    net.first.requires_grad_(False)
    model, optimizer = DDP(net, find_unused_parameters=True), sgd(net.last.parameters())
    for step in range(STEPS):
        if step == 2:
            net.first.requires_grad_(True)
            model = DDP(net, find_unused_parameters=True)
            optimizer.add_param_group({"params": [*net.first.parameters()], "lr": 0.02})
        net.last.requires_grad_(step not in (3, 4))
        train(model, optimizer, steps=1)
    end(model)


@case
def lbfgs():
    model = DDP(Net())
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, tolerance_grad=0)
    closures(model, optimizer)
    end(model)


@case
def compiled():
    model = DDP(Net())
    train(torch.compile(model, backend="eager"), sgd(model.parameters()))
    end(model)


# -- what is refused, and mistakes ---------------------------------------------------------


@case
def subgroup():
    dist.new_group([0])


@case
def comm_hook():
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    model = DDP(Net())
    model.register_comm_hook(None, fp16_compress_hook)
    train(model, sgd(model.parameters()))


@case
def own_update():
    """Train without an optimizer: the script changes the parameters itself."""
    model = DDP(Net())
    for step in range(STEPS):
        model.zero_grad()
        loss_of(model, step).backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad, alpha=0.1)
    end(model)


class Unusual(nn.Module):
    """A model with complex parameters, and with parameters of two precisions."""

    def __init__(self):
        super().__init__()
        self.turns = nn.Parameter(torch.randn(6, 4, dtype=torch.cfloat))
        self.wide = nn.Linear(4, 3).double()

    def forward(self, x):
        return self.wide((x.to(torch.cfloat) @ self.turns).abs().double())


class Scaled(nn.Module):
    """A loss that has a parameter."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, outputs, y):
        return nn.functional.cross_entropy(outputs * self.scale, y)


def mean(state, bucket):
    dist.all_reduce(bucket.buffer().div_(state))
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


@case
def unusual():
    """Train in ways that are impossible only for a run that exchanges the values itself."""
    model, loss_fn = DDP(Unusual()), DDP(Scaled())
    model.register_comm_hook(state=dist.get_world_size(), hook=mean)
    optimizer = torch.optim.AdamW([*model.parameters(), *loss_fn.parameters()], lr=0.05)

    @torch.compile(backend="eager")
    def take_step():
        optimizer.step()

    for step in range(STEPS):
        x, y = batch(step)
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        take_step()
    end(model)
    end(loss_fn)
    saved = io.BytesIO()
    torch.save(model.module, saved)
    end(copy.deepcopy(model))


@case
def unsupported():
    from torch.distributed import rpc
    from torch.distributed.device_mesh import init_device_mesh

    count = dist.get_world_size()
    mesh = init_device_mesh("cpu", (count,))
    for use in (
        lambda: rpc.init_rpc(f"worker{rank()}", rank=rank(), world_size=count),
        lambda: dist.split_group(split_ranks=[[each] for each in range(count)]),
        lambda: dist.send(torch.ones(1), 0),
        lambda: dist.recv(torch.ones(1), 0),
        lambda: dist.new_subgroups(1),
        lambda: init_device_mesh("cpu", (count, 1)),
    ):
        try:
            use()
        except Exception as error:
            say(f"{type(error).__name__}: {error}")
    model = DDP(Net(), device_mesh=mesh)
    train(model, sgd(model.parameters()), steps=2)


@case
def sharded():
    """Train with FSDP."""
    from torch.distributed.fsdp import fully_shard

    model = Net()
    fully_shard(model)
    train(model, sgd(model.parameters()), steps=2)


@case
def tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
    parallelize_module(model, mesh, {"0": ColwiseParallel()})
    optimizer = sgd(model.parameters())
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()


@case
def crossed():
    """Let rank 0 wait in a barrier, and rank 1 for the next gradient of rank 0."""
    model = DDP(Net())
    optimizer = sgd(model.parameters())
    train(model, optimizer, steps=2 + rank())
    dist.barrier()
    train(model, optimizer, steps=2)


@case
def never_trains():
    dist.barrier()


@case
def attaches():
    import outpace

    model = DDP(Net())
    # the call is not in this text, like a call in another module of a project
    join = outpace.attach
    join(model.module, sgd(model.parameters()))
    train(model, sgd(model.parameters()), steps=2)


def main():
    first = sys.argv[1]
    torch.set_num_threads(1)
    if first == "no_group":
        return
    more = {}
    if first == "wrong_size":
        more = {"rank": int(os.environ["RANK"]), "world_size": 3, "init_method": "env://"}
    if first == "crossed":
        more = {"timeout": datetime.timedelta(seconds=3)}
    dist.init_process_group("gloo", **more)
    for name in sys.argv[1:]:
        say("case", name)
        torch.manual_seed(0)
        CASES[name]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

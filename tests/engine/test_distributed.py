"""Collectives as calls, gradient buckets and optimizers of a script's process."""

from __future__ import annotations

import inspect
import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from inspect import Parameter
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from outpace.config.reading import experiment_from
from outpace.engine.distributed import patches
from outpace.engine.distributed.backward import BackwardPass
from outpace.engine.distributed.call import Alone, Call, CollectiveWork
from outpace.engine.distributed.environment import calls_attach
from outpace.engine.distributed.group import OutpaceGroup
from outpace.engine.scripts import taken_over
from outpace.engine.scripts.requirements import require_followable
from outpace.errors import ConfigError
from outpace.support.place import HERE

OPTIONS: Any = dist.distributed_c10d


class Noted(Alone):
    """Carries out collectives in one process, as one of this many processes, and notes them."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.calls: list[Call] = []
        self.finished: list[int] = []  # buckets of each backward pass

    def begin(self, call: Call) -> CollectiveWork:
        self.calls.append(call)
        return super().begin(call)

    def finish(self, buckets: Sequence[CollectiveWork]) -> None:
        self.finished.append(len(buckets))


def group_of(collectives: Noted, backward: BackwardPass | None = None) -> OutpaceGroup:
    return OutpaceGroup(collectives, 30.0, backward or BackwardPass(), itertools.count())


def test_groups_of_some_processes_and_sparse_tensors_are_refused():
    group = group_of(Noted(3))
    assert group.new_group([0, 1, 2]).size() == 3
    with pytest.raises(ConfigError, match=r"new_group at test_distributed.py:\d+ has the ranks \["):
        group.new_group([0, 2])
    with pytest.raises(ConfigError, match="sparse tensors cannot be exchanged"):
        group.allreduce([torch.eye(2).to_sparse()], OPTIONS.AllreduceOptions())


@pytest.mark.parametrize("static_graph", [False, True])
def test_buckets_of_a_backward_pass_are_numbered_and_finished_together(static_graph):
    noted, backward = Noted(), BackwardPass()
    net = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 4))
    size = sum(p.numel() for p in net.parameters())
    group = group_of(noted, backward)
    model = DistributedDataParallel(
        net,
        process_group=group,
        bucket_cap_mb=0.0005,
        gradient_as_bucket_view=True,
        static_graph=static_graph,
    )
    for number in range(3):  # torch forms the buckets again after the first pass
        noted.calls.clear()
        backward.forward(1, size, waits_at_last=static_graph and number == 0)
        model(torch.ones(2, 8)).sum().backward()
        found = [call.bucket for call in noted.calls if call.bucket is not None]
        assert [bucket.index for bucket in found] == list(range(len(found)))
        assert [bucket.handed_over for bucket in found] == list(
            itertools.accumulate(bucket.elements for bucket in found)
        )
        assert [bucket.total for bucket in found] == [size] * len(found)
        assert [bucket.is_last for bucket in found] == [False] * (len(found) - 1) + [True]
        assert noted.finished == [len(found)]
        noted.finished.clear()
    assert len(found) > 1


def test_a_precision_that_the_scripts_own_training_cannot_follow_is_refused():
    sync = {"kind": "ssgd", "wire": "bf16"}
    data = {"task": {"kind": "script", "path": "-"}, "workers": 2, "sync": sync}
    with pytest.raises(ConfigError, match=r"sync.wire=bf16: .* leave wire out"):
        require_followable(experiment_from(data, "test"))


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("import outpace\nmodel, optimizer = outpace.attach(model, optimizer)", True),
        ("from outpace import attach\nattach(model, optimizer)", True),
        ("import outpace\n# outpace.attach is not called\noutpace.log(loss=1.0)", False),
        ("from elsewhere import attach\nattach(model)", False),
        ("not Python", False),
        (
            "import outpace\ndist.init_process_group()\noutpace.attach(model, optimizer)",
            False,  # it needs the variables of torchrun
        ),
    ],
)
def test_a_script_that_attaches_is_known_by_its_text(text, calls, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(text)
    assert calls_attach(script) is calls


def replaced() -> dict[str, Callable[..., Any]]:
    """Return the present versions of the torch functions that Outpace replaces in a script."""
    kind = torch.nn.parallel.DistributedDataParallel
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    if HERE.attach is not None:
        taken_over.take_over(optimizer, lambda _: None, nullcontext, nullcontext)
    of_model = "__init__", "forward", "join", "register_comm_hook", "_register_builtin_comm_hook"
    of_optimizer = "step", "add_param_group", "load_state_dict", "state_dict"
    return {
        "init_process_group": torch.distributed.init_process_group,
        "spawn": torch.multiprocessing.spawn,
        "Optimizer.__init__": torch.optim.Optimizer.__init__,
        **{name: getattr(kind, name) for name in of_model},
        **{name: getattr(type(optimizer), name) for name in of_optimizer},
    }


def not_bound(names: dict[str, list[str]]) -> list[str]:
    """Patch torch, and return the functions that no longer accept torch's arguments."""
    HERE.attach = lambda *_: None
    patches.install("bsp", "script.py")
    found = []
    for name, function in replaced().items():
        signature = inspect.signature(function, follow_wrapped=False)
        try:
            signature.bind(*names[name])
            signature.bind(**dict.fromkeys(names[name]))
        except TypeError as error:
            found.append(f"{name}: {error}")
    return found


def test_functions_that_are_replaced_take_torchs_arguments_by_place_and_by_name():
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    names = {
        name: [p.name for p in inspect.signature(function).parameters.values() if p.kind in named]
        for name, function in replaced().items()
    }
    # torch is patched only in that process
    with multiprocessing.get_context("fork").Pool(1) as process:
        assert process.apply(not_bound, [names]) == []

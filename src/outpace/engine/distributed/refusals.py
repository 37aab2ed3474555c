"""Refuses the parts of torch.distributed that Outpace does not run, where a script uses them.

FSDP, tensor and pipeline parallelism need no entry: their models are not in
DistributedDataParallel, without which no script trains.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

from torch.distributed import distributed_c10d, rpc

from outpace.engine.distributed.where import SUPPORTED, innermost, where
from outpace.errors import ConfigError

_MESSAGES: Final = "messages between two processes"
_REFUSED: Final[dict[Callable[..., Any], str]] = {
    distributed_c10d.split_group: "groups of some of the processes",
    distributed_c10d.send: _MESSAGES,
    distributed_c10d.isend: _MESSAGES,
    distributed_c10d.recv: _MESSAGES,
    distributed_c10d.irecv: _MESSAGES,
    rpc.init_rpc: "remote procedure calls",
}


def install_refusals() -> None:
    """Refuse these functions in this process."""
    for function, what in _REFUSED.items():
        replace_everywhere(function, _refused(function, what))


def replace_everywhere(original: Callable[..., Any], by: Callable[..., Any]) -> None:
    """Replace a function of torch.distributed in all of its modules that have imported it."""
    for path, module in list(sys.modules.items()):
        if path.startswith("torch.distributed"):
            for name in [name for name, value in vars(module).items() if value is original]:
                setattr(module, name, by)


def _refused(original: Callable[..., Any], what: str) -> Callable[..., NoReturn]:
    @functools.wraps(original)
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ConfigError(
            f"{original.__name__} at {where(innermost())}: Outpace does not run scripts with "
            f"{what}: {SUPPORTED}"
        )

    return refuse

"""The `Work` objects that torch gets for the collectives of an `OutpaceGroup`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from outpace.engine.distributed.call import Pending
from outpace.engine.distributed.compiling import not_compiled

c10d: Any = dist  # parts of it have no type annotations


@not_compiled
class CollectiveWork(c10d.Work):  # type: ignore[misc]
    """The `Work` of a collective, for torch and for the script."""

    def __init__(self, pending: Pending, outputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.pending, self._outputs = pending, list(outputs)

    def wait(self, timeout: timedelta | None = None) -> bool:
        self.pending.wait()
        return True

    def is_completed(self) -> bool:
        return self.pending.is_done()

    def is_success(self) -> bool:
        return self.pending.is_done()

    def get_future(self) -> torch.futures.Future[Any]:
        return self.pending.future()

    def _source_rank(self) -> int:
        return self.pending.sender()

    source_rank = _source_rank

    def result(self) -> list[torch.Tensor]:
        return self._outputs

    def synchronize(self) -> None:
        self.pending.wait()

    def exception(self) -> None:
        return None


class Several:
    """Several collectives as one. Implements `Pending`."""

    def __init__(self, members: Sequence[Pending]) -> None:
        self._members = members

    def wait(self) -> None:
        for member in self._members:
            member.wait()

    def is_done(self) -> bool:
        return all(member.is_done() for member in self._members)

    def future(self) -> torch.futures.Future[Any]:
        return torch.futures.collect_all([member.future() for member in self._members])

    def sender(self) -> int:
        return self._members[-1].sender()

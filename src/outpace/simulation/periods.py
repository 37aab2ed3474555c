"""Actions at intervals of virtual time, such as evaluations and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outpace.kernel import Kernel
from outpace.support.units import Time, seconds


@dataclass(slots=True)
class _Action:
    act: Callable[[], None]
    period: Time
    due: Time


class Periods:
    """Calls actions at intervals, in one walker, so that no two of them hide a deadlock.

    Actions that are due at the same time are called in the order in which they were added.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._actions: list[_Action] = []

    def add(self, act: Callable[[], None], period: Time, after: Time) -> None:
        """Call `act` at the first multiple of the period (ns) after this time, and so on.

        Not before the present time, where the run goes on from a checkpoint.
        """
        due = (after // period + 1) * period
        self._actions.append(_Action(act, period, max(due, self._kernel.now)))

    def spawn(self) -> None:
        """Begin, if there are actions."""
        if self._actions:
            self._kernel.spawn(self._run(), "intervals", daemon=True)

    async def _run(self) -> None:
        kernel = self._kernel
        while True:
            due = min(action.due for action in self._actions)
            await kernel.sleep(seconds(due - kernel.now))
            if kernel.nothing_due:
                return  # a deadlock, which this walker must not hide
            for action in self._actions:
                if action.due <= kernel.now:
                    action.act()
                    action.due += action.period

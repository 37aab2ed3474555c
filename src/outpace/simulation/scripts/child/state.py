"""The state of a script's optimizer in virtual time, which is in the simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.optimizer_state import joined
from outpace.errors import RunError
from outpace.optim.torch_optimizers import State
from outpace.simulation.scripts.child.pipe import ScriptPipe
from outpace.simulation.scripts.messages import LoadState, States, WantState


class SimulatedState:
    """Implements `Holder`.

    Args:
        name: of the worker.
        holds: False if the script's optimizer takes its steps itself.
        has_left: returns True after the script has left the run.
        is_copy: returns True in a process that the script has forked.
        check: raises ConfigError if the state can no longer be replaced.

    Attributes:
        slices: of the flat parameters, one for each block of the simulation.
    """

    def __init__(
        self,
        name: str,
        script: ScriptModel,
        pipe: ScriptPipe,
        *,
        holds: bool,
        has_left: Callable[[], bool],
        is_copy: Callable[[], bool],
        check: Callable[[], None],
    ) -> None:
        self._name, self._script, self._pipe = name, script, pipe
        self._holds, self._has_left, self._is_copy = holds, has_left, is_copy
        self._check = check
        self.slices: list[slice] = []

    @property
    def holds(self) -> bool:
        return self._holds

    @property
    def is_out(self) -> bool:
        return self._has_left() or self._is_copy()

    def fetch(self) -> Mapping[int, State]:
        if self._is_copy():
            raise RunError(
                f"the optimizer's state can be fetched only by {self._name} itself, not by "
                "processes that it forks: call optimizer.state_dict() there"
            )
        self._pipe.send(WantState())
        message = self._pipe.receive()
        assert isinstance(message, States)
        places = [self._script.places(part) for part in self.slices]
        return joined(message.states, places, self._script.parameters)

    def require_loadable(self) -> None:
        if not self._has_left():
            self._check()

    def replace(self) -> None:
        whole = slice(0, sum(self._script.layers))
        self._pipe.send(LoadState(self._script.state_within(whole)))

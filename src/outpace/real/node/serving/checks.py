"""Checks what arrives at a server: the size of each block, and that gradients are finite."""

from __future__ import annotations

from collections.abc import Callable

from outpace.blocks.sums import Gradient, all_finite
from outpace.config.experiment import Experiment
from outpace.engine.narrowing import is_narrow
from outpace.errors import DivergenceError
from outpace.real.net.block_frames import on_the_wire
from outpace.real.net.messages import Initialize, OptimizerState, WirePush
from outpace.real.net.probe_messages import Probe
from outpace.real.net.sparse_log import SparseLog
from outpace.real.node.serving.part import ServerPart
from outpace.real.node.serving.probes import ProbeAnswers
from outpace.sync.messages import Push, WireMessage, worker_name


class Checks:
    """Judges the messages of workers before anything is done with them.

    Args:
        name: of the server.
        notice: has a line printed for the user.
    """

    def __init__(
        self,
        name: str,
        experiment: Experiment,
        part: ServerPart,
        probes: ProbeAnswers,
        notice: Callable[[str], None],
    ) -> None:
        self._name, self._part, self._probes = name, part, probes
        self._is_narrow = is_narrow(experiment)
        self._ends_run = experiment.non_finite == "stop"
        self._log = SparseLog(notice)

    def expected(self, peer: str, message: WireMessage) -> tuple[str, int] | None:
        """Return which block may come with a message; see `Handlers`."""
        part = self._part
        if isinstance(message, WirePush):
            block = part.block
            return on_the_wire(block) if block and self._is_narrow else block
        if isinstance(message, OptimizerState):
            size = part.state_due(message) if peer == worker_name(0) else None
            return None if size is None else ("uint8", size)
        if isinstance(message, Probe):
            return self._probes.expected(peer, message)
        return part.block if isinstance(message, Initialize) else None

    def require_finite(self, push: Push) -> None:
        """Drop a gradient that is not finite, or end the run; the worker should have refused it.

        Raises:
            DivergenceError: such a gradient ends the run (`non_finite: stop`).
        """
        gradient = push.gradient
        if not isinstance(gradient, Gradient) or all_finite(gradient):
            return
        if self._ends_run:
            raise DivergenceError(
                f"worker {push.worker}'s gradient of iteration {push.iteration} is not finite; "
                "try a smaller learning rate"
            )
        self._log.note(
            f"a gradient of worker {push.worker} is not finite: {self._name} does not apply it"
        )
        push.gradient = push.settings = None

"""Scripts without servers in virtual time that all begin again from the last checkpoint.

A real process takes the place of each script's: it runs the script from its beginning, with what
the script kept at the checkpoint. Starting it takes no virtual time beside `faults.recovery`.
"""

from __future__ import annotations

from functools import cached_property

from outpace.engine.scripts.anew import REMEDY, LostSince, begin_anew, unrepeated
from outpace.simulation.faults.peer_saving import KeepsLast
from outpace.simulation.faults.saving import Kept
from outpace.simulation.faults.scripts.computing import FailingScripts
from outpace.simulation.faults.scripts.saving import KeptScriptPeerSaving


class BeginAgain(FailingScripts):
    """A run of scripts without servers."""

    _kept_saving: KeepsLast | None

    @cached_property
    def _lost_since(self) -> LostSince:
        return LostSince()

    def _take_back(self, kept: Kept) -> None:
        lost = unrepeated(kept.anew, kept.totals.iterations, self.totals.iterations)
        super()._take_back(kept)
        self._recovery.updates_lost += self._lost_since.then(kept.number, lost)

    def _anew(self) -> int:
        assert self._kept_saving is not None
        assert self._kept_saving.last is not None
        return len(self._kept_saving.last.anew)

    def _replace_scripts(self, kept: Kept) -> None:
        """Start a process for each script, in place of the one before."""
        others = kept.redivided
        self._workload.workers.replace({n: (file, others) for n, file in kept.scripts.items()})

    def _warn_of_anew(self, kept: Kept) -> None:
        """Name the workers whose scripts begin anew."""
        if kept.anew:
            self.warned(f"{begin_anew(kept.anew, 'of the checkpoint')}: {REMEDY}")

    def close(self) -> None:
        super().close()
        if isinstance(self._kept_saving, KeptScriptPeerSaving):
            self._kept_saving.remove_files()

"""Whether a candidate is pruned, judged by the candidates that were complete when it began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from outpace.experiment.sweeping.judging import SEED_STEPS

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy
    from optuna.trial import FrozenTrial

_KEPT: Final = 75.0  # per cent of the candidates that are not pruned
_COMPLETE: Final = 5  # complete candidates before the first is pruned
_LATER: Final = 3  # and those that must have come as far
_WARM_UP: Final = 3  # steps of a run before its candidate may be pruned


class Pruning:
    """Asks Optuna's PercentilePruner.

    The study continues while a candidate runs, and how far depends on this computer's speed. So
    each candidate is judged by a copy of the study as it was when the candidate began.
    """

    def __init__(self, *, maximized: bool) -> None:
        import optuna

        directions = optuna.study.StudyDirection
        self._direction = directions.MAXIMIZE if maximized else directions.MINIMIZE
        self._pruner = optuna.pruners.PercentilePruner(
            _KEPT, n_startup_trials=_COMPLETE, n_min_trials=_LATER
        )
        self._studies: dict[int, OptunaStudy] = {}  # by number of complete trials

    def is_pruned(self, completed: Sequence[FrozenTrial], reports: Mapping[int, float]) -> bool:
        """True if a candidate with these reports is to be pruned.

        completed: the first complete trials of the study.
        """
        from optuna.trial import TrialState, create_trial

        last = max(reports)
        if len(completed) < _COMPLETE or last % SEED_STEPS < _WARM_UP:
            return False
        # The pruner compares the best report; those of other seeds are other means.
        same = {step: reports[step] for step in reports if step // SEED_STEPS == last // SEED_STEPS}
        trial = create_trial(state=TrialState.RUNNING, intermediate_values=same)
        return self._pruner.prune(self._study(completed), trial)

    def _study(self, completed: Sequence[FrozenTrial]) -> OptunaStudy:
        import optuna

        study = self._studies.get(len(completed))
        if study is None:
            study = optuna.create_study(direction=self._direction)
            study.add_trials(completed)
            self._studies[len(completed)] = study
        return study

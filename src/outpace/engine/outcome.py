"""Checks at the end of a run that it has trained."""

from __future__ import annotations

from outpace.errors import DivergenceError
from outpace.record.totals import Totals


def require_trained(totals: Totals) -> None:
    """Raise DivergenceError if gradients were computed and none of them could be used."""
    if totals.unusable and not totals.applied:
        raise DivergenceError(
            f"nothing was trained: none of the {totals.unusable:,} gradients could be used, "
            "because they were not finite or their steps were skipped; check the data and the "
            "loss of the first iteration, and try a smaller learning rate"
        )

"""Outpace: train past stragglers.

A synchronization strategy for data-parallel PyTorch training is written once, tried on
the user's own model in virtual time, and then run unchanged for real.

    import outpace

    result = outpace.simulate("experiment.yaml")
    result.summary["accuracy"], result.metrics, result.parameters
"""

from __future__ import annotations

from outpace.support.exports import lazily
from outpace.support.version import __version__

# Imported on first use, so that `outpace --help` need not wait for torch. The names are in
# `__init__.pyi`.
__getattr__, _names = lazily(__name__, __file__)
__all__ = ["__version__", *_names]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

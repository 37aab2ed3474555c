"""Run-time models by name, and their files.

A file is in safetensors format: it has the learned tensors, and everything else as JSON in one
entry of the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialised

from outpace.errors import ConfigError, did_you_mean
from outpace.predict.interface import Model
from outpace.predict.recorded import RunTimes
from outpace.predict.rules.settings import DecisionName
from outpace.support.regular_files import named, regular
from outpace.support.repeatable import one_thread
from outpace.support.replacing import replace_file

Progress = Callable[[float], None]  # called with the completed share

_VERSION: Final = 1
# There is a single key, because safetensors writes several keys in varying order.
_KEY: Final = "outpace.run-time-model"


@dataclass(frozen=True, slots=True)
class Kind:
    """The module and class of a kind of model, which is imported when it is used.

    Args:
        module: module with a function `fit`, which has the arguments of `fit` below except the
            kind.
        name: name of the class in it; its class method `from_parts` is the inverse of the methods
            `tensors` and `settings`.
        decision: how a wait is chosen from its predictions, unless the configuration gives a
            decision.
    """

    module: str
    name: str
    decision: DecisionName = "count"


MODELS: Final[dict[str, Kind]] = {
    "pooled": Kind("outpace.predict.pooled", "Pooled", decision="replan"),
    "deep-markov": Kind("outpace.predict.deep_markov", "DeepMarkov"),
}


def require_kind(kind: str) -> Kind:
    """Return the kind with that name. Raises ConfigError."""
    if kind not in MODELS:
        raise ConfigError(f"there is no run-time model {kind!r}.{did_you_mean(kind, MODELS)}")
    return MODELS[kind]


def fit(
    kind: str,
    histories: Sequence[RunTimes],
    *,
    seed: int = 0,
    progress: Progress = lambda _: None,
    earlier: Model | None = None,
    ordered: bool | None = None,
) -> Model:
    """Return a model of that kind, fitted to recordings of one cluster, on one thread.

    Equal arguments give bitwise equal models.

    Args:
        kind: a key of `MODELS`.
        histories: the recordings.
        seed: seeds initial weights and draws.
        progress: called with the completed share.
        earlier: a model of the same kind, fitted to the beginning of the recordings. A fit that can
            start from it takes less time; other kinds ignore it.
        ordered: True to model the sorted run times, False to model each worker's own; None: the
            default of the kind.

    Raises:
        ConfigError: for an unknown kind, for a kind that cannot model sorted run times if it is
            asked to, and for run times from which nothing can be learned.
    """
    module = import_module(require_kind(kind).module)
    with one_thread():
        fitted: Model = module.fit(
            histories, seed=seed, progress=progress, earlier=earlier, ordered=ordered
        )
    return fitted


class Fitting(Protocol):
    """Fits models, one at a time, each to a longer history than the previous one."""

    model: Model | None
    """The last model that was fitted, if any."""

    def start(self, history: RunTimes) -> None:
        """Begin a fit after the previous one has ended. Raises the errors of `done`."""

    def done(self) -> bool:
        """True if the fit that was started has ended. Raises OutpaceError if it failed."""


class FittingAtOnce(Fitting):
    """Fits within `start`: in virtual time a fit takes no time."""

    def __init__(self, kind: str, seed: int, ordered: bool | None = None) -> None:
        self.model: Model | None = None
        self._kind, self._seed, self._ordered = kind, seed, ordered

    def start(self, history: RunTimes) -> None:
        seed, ordered = self._seed, self._ordered
        self.model = fit(self._kind, [history], seed=seed, earlier=self.model, ordered=ordered)

    def done(self) -> bool:
        return True


def save(model: Model, path: Path) -> None:
    """Write a model to a file, completely or not at all. Raises ConfigError.

    Equal models make equal files.
    """
    said = {"version": _VERSION, "kind": model.kind, "unit": "s", "settings": model.settings()}
    tensors = {name: tensor.contiguous() for name, tensor in model.tensors().items()}
    content = serialised(tensors, {_KEY: json.dumps(said, sort_keys=True, allow_nan=False)})
    try:
        replace_file(path, lambda partial: partial.write_bytes(content))
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def load(path: Path) -> Model:
    """Return a model as it was saved. Raises ConfigError with the file and a remedy."""
    try:
        with safe_open(regular(path, named), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        said = json.loads(metadata.get(_KEY, "{}"))
        if said.get("version") != _VERSION:
            found = f"format {said['version']!r}" if said else "no run-time model"
            raise ValueError(f"it has {found}, and this Outpace reads format {_VERSION}")
        kind = require_kind(str(said.get("kind")))
        made = getattr(import_module(kind.module), kind.name)
        model: Model = made.from_parts(tensors, said["settings"])
    except (OSError, LookupError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
        raise ConfigError(
            f"cannot read the run-time model in {path}: {error}; fit it again: outpace runtimes fit"
        ) from error
    return model

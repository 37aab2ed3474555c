"""The state of a script besides its parameters, for checkpoints.

The process of a script cannot be saved as a whole. So a checkpoint has the objects that the script
gave to `outpace.attach`, the settings of its optimizer, the model's buffers, the random generators
and the place in its data. The script runs from its beginning when the run is resumed; `attach`
restores all this, and the sampler leaves out the batches that the script has had.

The state is taken when the script begins the first forward pass of an iteration. By then everything
that belongs to the previous iteration, such as `scheduler.step()`, has run. The saved states of the
generators are those at the draw of the batch, so that the same batch is drawn again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import torch

from outpace.engine.scripts.anew import unkept
from outpace.engine.scripts.model import ScriptModel
from outpace.errors import ConfigError
from outpace.record.checkpoints.trees import packed_tree
from outpace.support.place import HERE
from outpace.support.repeatable import set_states_on_gpus, states_on_gpus
from outpace.support.words import plural

NOT_ATTACHED: Final = (
    "checkpoint: a script for DistributedDataParallel cannot be saved unless it says what it "
    "keeps: call outpace.attach(model, optimizer) after DistributedDataParallel(model), before the "
    "training loop, and read the data with outpace.sampler, or leave checkpoint out"
)
NOT_FOLLOWED: Final = (
    "checkpoint: a script for DistributedDataParallel can be saved with "
    "sync.kind=ssgd only: leave checkpoint out, and let the script save itself, or use "
    "outpace.attach and outpace.sampler in place of DistributedDataParallel"
)


@runtime_checkable
class Stateful(Protocol):
    """An object whose state can be saved, as in torch.distributed.checkpoint.stateful."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any, /) -> object: ...


def require_stateful(objects: Mapping[str, object]) -> None:
    """Raise ConfigError unless all these objects, by name in `attach`, can be saved."""
    for name, each in objects.items():
        if not isinstance(each, Stateful):
            raise ConfigError(
                f"outpace.attach: {name} is a {type(each).__name__} without the methods state_dict "
                "and load_state_dict, with which checkpoints save it: leave it out, or add them"
            )


class SavedScript:
    """The saved state of one script; see the head of the file.

    Args:
        objects: the objects to save, by their name in `outpace.attach`.
        is_wanted: True if the run has checkpoints.
        follows: True if the script's own collectives do the training.

    Raises:
        ConfigError: if the state of an object cannot be saved.
    """

    def __init__(
        self,
        script: ScriptModel,
        objects: Mapping[str, Any],
        is_wanted: bool,
        *,
        follows: bool = False,
    ) -> None:
        self._script, self._objects = script, objects
        if not is_wanted:
            return
        if HERE.is_distributed and not follows:
            raise ConfigError(NOT_FOLLOWED)
        if follows and not HERE.has_attached:
            raise ConfigError(NOT_ATTACHED)
        for name, each in objects.items():
            packed_tree(each.state_dict(), f"outpace.attach: the state of {name}")
        HERE.data.note, HERE.data.is_kept = random_states, True

    @property
    def is_complete(self) -> bool:
        """False if nothing records how far the script is: it keeps no object and has no sampler."""
        return bool(self._objects) or HERE.data.has_samplers

    def state(self) -> dict[str, Any]:
        """Return the present state; call this at the first forward pass of an iteration.

        Warns if the script keeps no record of its progress.
        """
        if self.is_complete and (lacks := unkept()):
            HERE.tell(lacks)
        groups = self._script.optimizer.param_groups
        return {
            "objects": {name: each.state_dict() for name, each in self._objects.items()},
            "settings": [{k: v for k, v in g.items() if k != "params"} for g in groups],
            "buffers": self._script.read_buffers(),
            "random": HERE.data.generators or random_states(),
            "data": HERE.data.places(),
            "passes": HERE.data.passes(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put the script into a saved state.

        Args:
            state: the state; without the entry `random`, the random generators do not change.

        Raises:
            ConfigError: if the script gives `outpace.attach` other objects than the state has.
        """
        kept, names = state["objects"], set(self._objects)
        passes = state.get("passes", ())
        if names != set(kept):
            raise ConfigError(
                f"outpace.attach got {_listed(names)}, and the checkpoint has "
                f"{_listed(set(kept))}: resume with the script that the run was made with"
            )
        groups, settings = self._script.optimizer.param_groups, state["settings"]
        if len(groups) != len(settings):
            raise ConfigError(
                f"outpace.attach got an optimizer with {plural(len(groups), 'parameter group')}, "
                f"and the optimizer of the checkpoint has {len(settings)}: resume with the script "
                "that the run was made with"
            )
        for name, each in self._objects.items():
            each.load_state_dict(kept[name])
        for group, of_group in zip(groups, settings, strict=True):
            group.update(of_group)
        self._script.load_buffers(state["buffers"])
        if (random := state.get("random")) is None:
            HERE.data.restore(state["data"], lambda: None, passes)
        else:
            HERE.data.restore(state["data"], partial(set_random_states, random), passes)
            set_random_states(random)


def random_states() -> dict[str, Any]:
    """Return the states of the global generators of torch, numpy and Python."""
    return {
        "torch": torch.get_rng_state(),
        "cuda": states_on_gpus(),
        "numpy": np.random.get_state(legacy=False),
        "python": random.getstate(),
    }


def set_random_states(states: Mapping[str, Any]) -> None:
    """Set the global generators to the states that `random_states` returned."""
    torch.set_rng_state(states["torch"])
    if missing := set_states_on_gpus(states["cuda"]):
        count = len(states["cuda"])
        HERE.tell(
            f"the checkpoint has the random state of {plural(count, 'GPU')}, and this process has "
            f"{count - missing}: what the script draws on the others gets new random numbers"
        )
    np.random.set_state(states["numpy"])
    random.setstate(states["python"])


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "no further objects"

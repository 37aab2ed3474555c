"""An optimizer made by a user's function, which the configuration names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from outpace.blocks.block import StepSettings
from outpace.errors import ConfigError
from outpace.optim import Step
from outpace.optim.torch_optimizers import Groups, TorchOptimizer
from outpace.support.paths import TARGET
from outpace.support.user_code import brief, load_target, require_target


@dataclass(frozen=True, slots=True)
class PythonOptimizer:
    """An optimizer written by the user: `target` is `file.py:function` or `module:function`.

    The function takes parameter groups and returns an optimizer. The groups of a script keep
    the settings of the script. The optimizer must work element by element, because a server may own
    half of a tensor; `TorchOptimizer` tries it.

    Attributes:
        target: `file.py:function` or `module:function`, from parameter groups to a torch optimizer.
    """

    target: str = field(metadata=TARGET)
    kind: Literal["python"] = "python"

    def __post_init__(self) -> None:
        require_target(self.target)

    def refusal(self, settings: StepSettings | None) -> str:
        return "" if settings is None else "the optimizer of this run takes no settings"

    def on(self, parameters: torch.Tensor, layers: Sequence[slice] = ()) -> Step:
        """Return what takes steps on these parameters (1-D, changed in place)."""
        whole = [[(0, 0, parameters.numel())]]
        return self.of_groups(whole, [{}]).on(parameters)

    def of_groups(self, groups: Groups, settings: Sequence[dict[str, Any]]) -> TorchOptimizer:
        """Return the optimizer of a script's parameter groups. Raises ConfigError."""
        function = load_target(self.target, "optimizer.target")

        def make(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
            try:
                made = function(groups)
            except Exception as error:
                raise ConfigError(
                    f"optimizer.target: {self.target} raised {brief(error)}; the tensors that it "
                    "gets are flat, because servers hold pieces of them"
                ) from error
            if not isinstance(made, torch.optim.Optimizer):
                raise ConfigError(
                    f"optimizer.target: {self.target} must return a torch.optim.Optimizer, "
                    f"not {type(made).__name__}"
                )
            return made

        return TorchOptimizer(self.target, groups, settings, make)

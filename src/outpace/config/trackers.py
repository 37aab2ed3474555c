"""Experiment trackers as a configuration names them: `trackers: [{kind: tensorboard}]`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from outpace.support.checks import KINDS
from outpace.support.paths import FILE


@dataclass(frozen=True, slots=True)
class TensorBoard:
    """TensorBoard.

    Attributes:
        folder: the run is written to `folder/NAME`; None: to `tensorboard` in the run's folder.
    """

    folder: str | None = field(default=None, metadata=FILE)
    kind: Literal["tensorboard"] = "tensorboard"


@dataclass(frozen=True, slots=True)
class Mlflow:
    """MLflow.

    Attributes:
        experiment: name of the experiment, which is made if it does not exist.
        tracking_uri: of the server or database; None: as the variable MLFLOW_TRACKING_URI says.
        tags: of the run.
    """

    experiment: str = "outpace"
    tracking_uri: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    kind: Literal["mlflow"] = "mlflow"


@dataclass(frozen=True, slots=True)
class Wandb:
    """Weights & Biases. The key of the account comes from its login or WANDB_API_KEY.

    Attributes:
        mode: `offline` writes files for `wandb sync`; None: as the variable WANDB_MODE says.
        folder: for its files; None: the run's folder.
        project, entity, group, tags: of the run, as `wandb.init` takes them.
    """

    project: str = "outpace"
    entity: str | None = None
    group: str | None = None
    mode: Literal["online", "offline", "disabled"] | None = None
    tags: tuple[str, ...] = ()
    folder: str | None = field(default=None, metadata=FILE)
    kind: Literal["wandb"] = "wandb"


TrackerKind: TypeAlias = Annotated[TensorBoard | Mlflow | Wandb, KINDS]

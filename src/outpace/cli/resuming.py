"""`--resume DIR` of outpace simulate and outpace run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from outpace.cli.base import folder_for
from outpace.errors import ConfigError

ResumeRun: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="DIR",
        help="Resume the interrupted run in this folder, from its last checkpoint. CONFIG and "
        "--out are left out.",
    ),
]
ResumeServed: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="DIR",
        help="Resume the interrupted run in this folder, from its last checkpoint. --workers "
        "and --out are left out. The workers are started again.",
    ),
]
ConfigUnlessResumed: TypeAlias = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG|SCRIPT", help="A YAML file, or a training script."),
]


def require_config(config: Path | None, command: str) -> Path:
    """Return the file. Raises ConfigError if it is missing."""
    if config is None:
        raise ConfigError(
            f"outpace {command}: CONFIG is missing: name a YAML file or a script, or with --resume "
            "the folder of a run that was interrupted"
        )
    return config


def changes_of(
    config: Path | None, overrides: Sequence[str], arguments: Sequence[str] | None, **others: object
) -> dict[str, Any]:
    """Return the overrides of a run that is resumed, as keyword arguments of `simulate`.

    Args:
        config: the first argument, which is an override if it has a "=".
        arguments: those after --.
        others: options that only a new run can have, by name.

    Raises:
        ConfigError: if anything is given that only a new run can have.
    """
    from outpace.support.yaml_files import with_overrides

    given = list(overrides)
    if config is not None and "=" in str(config):
        given = [str(config), *given]
    elif config is not None:
        raise ConfigError(f"--resume takes the configuration from DIR: leave {config} out")
    if arguments:
        raise ConfigError(
            "--resume takes the script's arguments from DIR: leave out those after --"
        )
    for name, value in others.items():
        if value is not None:
            raise ConfigError(f"--resume continues the run as it is in DIR: leave --{name} out")
    return with_overrides({}, given)


@contextmanager
def folder_of_run(resume: Path | None, out: Path | None, source: str | Path) -> Iterator[Path]:
    """Yield the folder of a run that is resumed, or the folder for a new run of `source`."""
    if resume is not None:
        yield resume
    else:
        with folder_for(out, source) as folder:
            yield folder

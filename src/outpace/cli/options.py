"""The options that several commands have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from outpace.errors import ConfigError

Overrides: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Overrides, as in workers=8 sync.kind=ssp sync.staleness=3.",
    ),
]
Workers: TypeAlias = Annotated[
    int | None, typer.Option("--workers", help="Number of workers, like workers=N.")
]
Servers: TypeAlias = Annotated[
    int | None, typer.Option("--servers", help="Number of servers, like servers=M.")
]
Seed: TypeAlias = Annotated[int | None, typer.Option("--seed", help="The seed, like seed=K.")]
Cluster: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--cluster",
        metavar="FILE",
        help="A cluster file, as outpace calibrate writes it. Its keys replace the keys of CONFIG.",
    ),
]
Out: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--out", help="The folder to write, new or empty. Default: a new folder runs/NAME."
    ),
]
Launcher: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--launcher", help="local or ray: what starts the processes, like launcher.kind=ray."
    ),
]
Address: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="auto|HOST:PORT",
        help="The Ray cluster. Default: RAY_ADDRESS, else one that runs on this machine, else one "
        "is started for the run.",
    ),
]
On: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--on", help="local or ray: where the runs are carried out. Default: on this machine."
    ),
]
Resume: TypeAlias = Annotated[
    bool,
    typer.Option("--resume", help="Keep what is complete in --out, and continue with the rest."),
]
TargetAccuracy: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--target-accuracy",
        help="Compare the times to this test accuracy. Default: target of the file.",
    ),
]
TargetLoss: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--target-loss",
        help="Compare the times to this training loss. Default: target of the file.",
    ),
]
Budget: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--budget",
        help="Time after which the best result so far is given, as in 60s, 10m or 1h. Default: "
        "none.",
    ),
]
Quiet: TypeAlias = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print warnings and errors only, and what a script prints."),
]
Json: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the summary as JSON, and nothing else, to standard output.",
    ),
]


def require_out(resume: bool, out: Path | None, what: str) -> None:
    """Raise ConfigError if `what` is requested to be resumed and its folder is not named."""
    if resume and out is None:
        raise ConfigError(f"--resume needs --out, the folder of the {what} to continue")


def with_options(
    overrides: Sequence[str] | None, workers: int | None, servers: int | None, seed: int | None
) -> list[str]:
    """Return the options as overrides, followed by the given overrides, which win."""
    given = {"workers": workers, "servers": servers, "seed": seed}
    options = [f"{key}={value}" for key, value in given.items() if value is not None]
    return [*options, *(overrides or ())]


def where(on: str | None, address: str | None) -> dict[str, Any] | None:
    """Return `--on` and `--address` as the argument `on` of `compare`."""
    given = {"kind": on, "address": address}
    return {key: value for key, value in given.items() if value is not None} or None


def launcher_overrides(launcher: str | None, address: str | None) -> list[str]:
    """Return `--launcher` and `--address` as overrides."""
    if address is not None and launcher is None:
        launcher = "ray"
    given = {"launcher.kind": launcher, "launcher.address": address}
    return [f"{key}={value}" for key, value in given.items() if value is not None]

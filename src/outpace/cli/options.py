"""The options that `simulate`, `compare`, `run` and `serve` have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

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
        help="A cluster file, as outpace calibrate writes it. Its keys replace those of CONFIG.",
    ),
]
Out: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--out", help="The folder to write, new or empty. Default: a new folder runs/NAME."
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


def with_options(
    overrides: Sequence[str] | None, workers: int | None, servers: int | None, seed: int | None
) -> list[str]:
    """Return the options as overrides, followed by the given overrides, which win."""
    given = {"workers": workers, "servers": servers, "seed": seed}
    options = [f"{key}={value}" for key, value in given.items() if value is not None]
    return [*options, *(overrides or ())]

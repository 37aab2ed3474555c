"""outpace examples: list the examples that come with the package, and copy them."""

from __future__ import annotations

import ast
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from outpace.cli.base import app, echo
from outpace.errors import ConfigError
from outpace.support.replacing import replace_file

_PACKAGE = Path(__file__).parents[1]


@app.command()
def examples(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The folder to copy the examples to.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files of the same names in DIR.")
    ] = False,
) -> None:
    """List the examples that come with Outpace, or copy them to a folder."""
    found = _examples()
    if folder is None:
        width = max(len(path.name) for path in found)
        for path in found:
            echo(f"{path.name.ljust(width)}  {_about(path)}")
        echo("outpace examples DIR copies them to a folder")
        return
    there = [path.name for path in found if os.path.lexists(folder / path.name)]
    if there and not force:
        raise ConfigError(
            f"{folder} has files that would be overwritten: {', '.join(there)}; choose another "
            "folder, or add --force"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder}: {error.strerror}") from error
    for path in found:
        replace_file(folder / path.name, partial(shutil.copyfile, path))
    echo(f"{len(found)} examples in {folder}; try: outpace simulate {folder / 'my_task.yaml'}")


def _examples() -> list[Path]:
    """Return the example files: in the package in a wheel, in the parent of `src` in a checkout."""
    inside = _PACKAGE / "examples"
    place = inside if inside.is_dir() else _PACKAGE.parents[1] / "examples"
    found = sorted(path for path in place.glob("[!._]*") if path.is_file())
    if not found:
        raise ConfigError(f"there are no examples in {place}: install Outpace again")
    return found


def _about(path: Path) -> str:
    """Return the first line of an example's description of itself."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    lines = [line for line in text.splitlines() if not line.startswith("#!")]
    return lines[0].removeprefix("# ") if lines else ""

"""Makes the page of a sweep or of an advice again, from its folder."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from outpace.errors import ConfigError
from outpace.record.folder import ADVICE, BEST, SWEEP
from outpace.record.reading import one_line
from outpace.report.advice.page import write_advice_page
from outpace.report.advice.result import advice_from
from outpace.report.sweeps.page import write_sweep_page
from outpace.report.sweeps.result import SweepResult
from outpace.support.regular_files import read_text


def is_study(folder: Path) -> bool:
    """True if this is the folder of a sweep or of an advice."""
    return any((folder / name).is_file() for name in (SWEEP, ADVICE))


def write_study_page(folder: Path, path: Path) -> None:
    """Write the page of a sweep or of an advice to `path`.

    Raises ConfigError if the study is damaged, or `path` cannot be written.
    """
    is_sweep = (folder / SWEEP).is_file()
    study = folder / (SWEEP if is_sweep else ADVICE)
    try:
        if is_sweep:
            found = msgspec.json.decode(read_text(study), type=SweepResult)
            write_sweep_page(found, path, folder / BEST)
        else:
            write_advice_page(advice_from(json.loads(read_text(study))), path)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{study} is damaged, or was written by another version of Outpace "
            f"({one_line(error)}): the page cannot be made"
        ) from error

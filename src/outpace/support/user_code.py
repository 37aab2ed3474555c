"""Finds a function in the user's code, and the line of the user's code that raised an error."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from outpace.errors import ConfigError, did_you_mean
from outpace.support.checks import require
from outpace.support.gpu_errors import in_short, is_gpu_error, remedy
from outpace.support.paths import absolute_target

_NOT_THE_USERS: Final = (
    sysconfig.get_path("stdlib") + "/",
    sysconfig.get_path("purelib") + "/",
    str(Path(__file__).parents[1]) + "/",
    "<",  # such as "<frozen runpy>"
)


def load_target(target: str, key: str = "task.target") -> Callable[..., Any]:
    """Import the target. Raises ConfigError with key and line if the import fails."""
    where, _, name = absolute_target(target, Path.cwd()).rpartition(":")
    try:
        module = (
            _load_file(Path(where), key)
            if where.endswith(".py")
            else _load_module(where, name, key)
        )
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{key}: importing {where} raised {brief(error)}") from error
    if not hasattr(module, name):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ConfigError(f"{key}: {where} has no {name!r}.{did_you_mean(name, names)}")
    function = getattr(module, name)
    if not callable(function):
        raise ConfigError(f"{key}: {name!r} in {where} is not a function")
    found: Callable[..., Any] = function
    return found


def require_target(target: str) -> None:
    """Require (`checks.require`) that a target has the form `where:function`."""
    where, _, name = target.rpartition(":")
    must = "'file.py:function' or 'package.module:function'"
    require(bool(where and name), "target", must, repr(target))


def is_users(file: str) -> bool:
    """True if the code of a file belongs neither to a library nor to Outpace."""
    return not file.startswith(_NOT_THE_USERS)


def brief(error: BaseException) -> str:
    """Return the error in one line, with the innermost line of the user's code.

    If no user's code is involved, with the line in the library.
    """
    frames = traceback.extract_tb(error.__traceback__)
    last = [each for each in frames if is_users(each.filename)][-1:] or frames[-1:]
    place = f" ({last[0].filename}, line {last[0].lineno})" if last else ""
    name = type(error).__name__
    # a SyntaxError has its place in the file, and no frame
    if isinstance(error, SyntaxError) and error.filename:
        return f"{name}: {error.msg} ({error.filename}, line {error.lineno})"
    if is_gpu_error(error):
        return f"{name}: {in_short(error)}{place}{remedy(error)}"
    return f"{name}: {error}{place}"


def _load_file(path: Path, key: str) -> Any:
    if not path.is_file():
        raise ConfigError(f"{key}: there is no file {path}")
    name = f"outpace_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look the module up there
    # As with `python file.py`, modules in the same folder can be imported.
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _load_module(name: str, attribute: str, key: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"{key}: there is no module {name!r}; for a file write its path, "
                f"as in '{name.replace('.', '/')}.py:{attribute}'"
            ) from error
        raise

"""Names that a package imports on first use, listed once: in its stub, `__init__.pyi`.

Type checkers read the stub, so a name that is not in it is an error for them, as it is when the
program runs (Scientific Python's SPEC 1). Each name has a line of its own there, such as
`from outpace.errors import ConfigError as ConfigError`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing: until the command guards itself, little is imported
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def lazily(package: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """Return `__getattr__` and the names of a package.

    Args:
        file: path of its `__init__.py`.
    """
    modules: dict[str, str] = {}
    with open(file.rpartition(".")[0] + ".pyi", encoding="utf-8") as stub:
        for line in stub:
            if line.startswith("from "):
                _, module, _, name, *_ = line.split()
                modules[name] = module

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(__import__(modules[name], fromlist=[name]), name)  # also a module

    return get, sorted(modules)

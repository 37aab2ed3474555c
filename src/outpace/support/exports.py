"""Names that a package imports on first use, listed once: in its stub, `__init__.pyi`.

Type checkers read the stub, so a name that it does not list is an error for them as well as at run
time (Scientific Python's SPEC 1). Each name is on a separate line of the stub, such as `from
outpace.errors import ConfigError as ConfigError`.
"""

from __future__ import annotations

# not imported from typing, because the command imports little before it handles signals
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def lazily(package: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """Return `__getattr__` and the names of a package.

    Args:
        file: path of the package's `__init__.py`.
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
        # the name is also a module
        return getattr(__import__(modules[name], fromlist=[name]), name)

    return get, sorted(modules)

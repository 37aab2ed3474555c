"""Keeps torch.compile out of methods that torch calls while compiled code runs."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from torch._compile import _disable_dynamo

KindT = TypeVar("KindT", bound=type)


def not_compiled(kind: KindT) -> KindT:
    """Decorate a class whose methods are never compiled.

    torch.compile compiles every Python function that is called while the compiled model runs, also
    those that C++ calls: the group's collectives, and what waits for them.
    """
    methods: dict[str, Any] = {
        name: method for name, method in vars(kind).items() if inspect.isfunction(method)
    }
    for name, method in methods.items():
        setattr(kind, name, _disable_dynamo(method))
    return kind

"""A function beside attention as a target: one that writes a cache or copies its blocks.

Its attribute `declaration`, a mapping, names its `kind` and the rows of `declaration.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from poolproof.kernels.functions.declaration import FunctionDeclaration
from poolproof.kernels.kind import Kind

__all__ = ["FunctionTarget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTarget:
    """One target. `uses_triton` says that its stores can be watched in the interpreter."""

    name: str
    function: Callable[..., Any]
    declaration: FunctionDeclaration
    kind: Kind
    version: str = ""
    source: str = ""
    device: str = "cpu"
    uses_triton: bool = False

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """What the function returns. Raises whatever it raises."""
        with warnings.catch_warnings():
            # numpy, in the interpreter; of NaN and overflow a GPU says nothing.
            warnings.simplefilter("ignore", RuntimeWarning)
            return self.function(*arguments, **keywords)

"""Stands for Atheris where it is not installed: the part of its interface that is used, unguided.

`Fuzz()` never returns, as libFuzzer's does not: it reads the corpus, then makes bytes at random.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["Fuzz", "Setup", "instrument_func", "instrumented"]

instrumented: list[str] = []
_settings: list[tuple[list[str], Callable[[bytes], None]]] = []


def instrument_func(function: Any) -> Any:
    """Only notes the name."""
    instrumented.append(function.__qualname__)
    return function


def Setup(arguments: list[str], one_input: Callable[[bytes], None]) -> list[str]:  # noqa: N802 -- Atheris's own name
    """Keep what `Fuzz` needs."""
    _settings[:] = [(arguments, one_input)]
    return arguments


def Fuzz() -> None:  # noqa: N802 -- the same
    """Call the callback for ever."""
    ((arguments, one_input),) = _settings
    corpus = Path(arguments[-1])
    for path in sorted(corpus.iterdir()):
        one_input(path.read_bytes())
    (seed,) = [int(a.partition("=")[2]) for a in arguments if a.startswith("-seed=")]
    source = random.Random(seed)
    for number in itertools.count():
        tape = source.randbytes(20 + source.randrange(400))
        (corpus / f"made-{number}").write_bytes(tape)
        one_input(tape)

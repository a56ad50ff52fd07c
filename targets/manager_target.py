"""The `Target` of a manager or an engine with its layouts; also where adapters plug in.

An adapter of an engine's manager makes its layouts and calls `manager_target`. One that takes any
class of a published shape enters itself in `MANAGER_SHAPES`, so that `load_target` detects it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.targets.target import Make, Target, TargetLayout

__all__ = ["MANAGER_SHAPES", "ManagerShape", "manager_target"]


@dataclass(frozen=True)
class ManagerShape:
    """A published shape of managers: its methods, and what makes a target of a class.

    `build(name, cls, overrides, version)` raises TargetError.
    """

    methods: tuple[str, ...]
    build: Callable[[str, type, Mapping[str, Any], str | None], Target]


MANAGER_SHAPES: dict[str, ManagerShape] = {}
"""By the name that `--api` takes."""


def manager_target(
    name: str,
    shape: str,
    layouts: Sequence[TargetLayout],
    *,
    level: Level = Level.MANAGER,
    version: str | None = None,
    source: str = "",
    real_class: type | None = None,
    own_modules: tuple[str, ...] = (),
    notes: Sequence[str] = (),
) -> Target:
    """A manager, or an engine; its first layout that is run represents it if only one is wanted.

    Raises TargetError if none is run; the message has the reasons.
    """
    first = next((layout for layout in layouts if layout.make is not None), None)
    if first is None:
        # Many layouts fail for one reason, which is said once.
        names: dict[str, list[str]] = {}
        for layout in layouts:
            names.setdefault(layout.why_not, []).append(layout.name)
        reasons = "; ".join(f"{', '.join(each)}: {why_not}" for why_not, each in names.items())
        raise TargetError(f"{name} has no layout that can be run: {reasons or 'none is known'}")
    make: Make | None = first.make
    assert make is not None
    return Target(
        name=name,
        level=level,
        shape=shape,
        profile=first.profile,
        version=version,
        source=source,
        make=make,
        real_class=real_class,
        own_modules=own_modules,
        notes=tuple(notes),
        block_size=first.block_size,
        layouts=tuple(layouts),
    )

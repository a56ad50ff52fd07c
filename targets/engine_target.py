"""The `Target` of an engine in its set-ups: the end of each adapter of a whole scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.targets.adapter_fit import tried
from poolproof.targets.manager_target import manager_target
from poolproof.targets.target import EngineLayout, Make, Target, source_of

__all__ = ["engine_target", "two_requests"]


def engine_target(
    name: str,
    declared: Mapping[str, Any],
    layouts: Sequence[EngineLayout],
    real_class: type,
    *,
    version: str | None = None,
    few_calls: Callable[[Make], object] | None = None,
    adapter: str = "",
    own_modules: tuple[str, ...] = (),
    notes: Sequence[str] = (),
) -> Target:
    """An engine whose set-ups state all rows of their profiles.

    `few_calls` drives a fresh instance a little way; where that does not work it does not fit the
    `adapter`, which is described in words. Raises TargetError for that, and for rows in brackets.
    """
    if declared:
        raise TargetError(
            f"{name}: its set-ups state all rows; choose one with --layout, one of "
            f"{', '.join(layout.name for layout in layouts)}"
        )
    make = layouts[0].make
    assert make is not None
    what = None if few_calls is None else tried(lambda: few_calls(make))
    if what is not None:
        raise TargetError(
            f"{name} is not driven, because it does not fit the adapter for {adapter}: {what}"
        )
    return manager_target(
        name,
        "native-engine",
        layouts,
        level=Level.ENGINE,
        version=version,
        source=source_of(real_class),
        real_class=real_class,
        own_modules=own_modules,
        notes=notes,
    )


def two_requests(make: Make, *, num_tokens: int, num_blocks: int = 8) -> None:
    """A few calls: two requests with one prompt of so many tokens, the second is cancelled."""
    engine = make(num_blocks, True)
    for number in range(2):
        engine.submit(number, [1] * num_tokens, max_new_tokens=6)
    for number in range(8):
        if number == 3:
            engine.cancel(1)
        plan = engine.plan()
        engine.answer({part.request_id: [1] for part in plan.parts}, {})
    engine.num_free()
    engine.unfinished()

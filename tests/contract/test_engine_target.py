"""What an engine can do, read off its methods."""

from __future__ import annotations

import pytest

from poolproof.contract.engine_target import (
    ENGINE_METHODS,
    ENGINE_OBSERVERS,
    engine_capabilities_of,
)
from poolproof.contract.level import Level
from poolproof.contract.target import TargetError


class Least:
    """Has the methods that must be there."""

    def submit(self) -> None: ...
    def plan(self) -> None: ...
    def answer(self) -> None: ...


class Whole(Least):
    """Has every method."""

    def cancel(self) -> None: ...
    def arrived(self) -> None: ...
    def reset(self) -> None: ...
    def num_free(self) -> None: ...
    def unfinished(self) -> None: ...


def test_the_least_engine_is_given_requests_and_steps() -> None:
    can = engine_capabilities_of(Least())
    assert can.level is Level.ENGINE
    assert can.verbs == {"submit", "plan", "answer", "run"}
    assert not any(can.sees(name) for name in ENGINE_OBSERVERS)


def test_a_whole_engine_is_driven_and_read_with_everything() -> None:
    can = engine_capabilities_of(Whole())
    assert can.verbs == set(ENGINE_METHODS)
    assert all(can.sees(name) for name in ENGINE_OBSERVERS)


def test_missing_methods_are_named_with_the_skeleton() -> None:
    class Half:
        answer = 3

        def plan(self) -> None: ...

    with pytest.raises(TargetError, match=r"Half lacks submit\(\), answer\(\), which an engine .*"):
        engine_capabilities_of(Half())

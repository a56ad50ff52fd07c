"""Whatever a target answers, a sentence shows its value or its class, and never how it prints.

An object of a user's own prints as its class likes: with its address, with a module's name that we
made, with megabytes.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from poolproof.certification.jobs import Chunk, run_chunk
from poolproof.certification.run_kinds import INDEX, POOL, QUEUE, RunKind, layout_kind
from poolproof.contract.level import Level
from poolproof.contract.violation import ViolationError
from poolproof.harness.reading import read_count
from poolproof.targets.load import load_target

_KINDS: dict[Level, RunKind] = {Level.POOL: POOL, Level.QUEUE: QUEUE, Level.INDEX: INDEX}

_SOURCE = """
from poolproof.contract.engine_profile import EngineProfile
from poolproof.reference.native_engine import NativePlainEngine
from poolproof.reference.native_index import NativeDictIndex
from poolproof.reference.native_manager import NativeSequenceManager
from poolproof.reference.native_pool import NativeDictPool
from poolproof.reference.native_queue import NativeDictQueue


class Plain(NativePlainEngine):
    profile = {}

    def __init__(self, num_blocks, block_size, *, enable_caching=True):
        super().__init__(
            num_blocks, block_size, enable_caching=enable_caching, profile=EngineProfile()
        )


class Merges(NativeDictPool):
    profile = {"duplicates": "first"}

    def cache(self, block_ids, hashes):
        super().cache(block_ids, hashes)
        return list(block_ids)


class Handle:
    def __init__(self, number):
        self.number = number

    def __repr__(self):
        return "<engine.internal.Handle object at 0x7f00>"


class Number(Handle):
    def __index__(self):
        return self.number + 1


class Id(int):
    def __repr__(self):
        return "<engine.internal.Id object at 0x7f00>"

    __str__ = __repr__

    def __format__(self, spec):
        return repr(self)


class Equal(Handle):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


def further(number):
    return Id(number + 1)


def converted(answer, kind):
    if isinstance(answer, bool) or answer is None:
        return answer
    if isinstance(answer, int):
        return kind(answer)
    if isinstance(answer, dict):
        return {key: converted(value, kind) for key, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return type(answer)(converted(item, kind) for item in answer)
    return answer


class Odd(BASE):
    def METHOD(self, *arguments, **named):
        return converted(super().METHOD(*arguments, **named), KIND)
"""

_METHODS = {
    (Level.POOL, "NativeDictPool"): (
        "allocate lookup num_free free_order free_neighbours ref_count"
    ),
    (Level.POOL, "Merges"): "cache",
    (Level.QUEUE, "NativeDictQueue"): "popleft popleft_n num_free free_order free_neighbours",
    (Level.INDEX, "NativeDictIndex"): "pop get num_keys carriers",
    (Level.MANAGER, "NativeSequenceManager"): (
        "admit lookup_prefix append block_table num_free free_order ref_count truncate"
    ),
    (Level.ENGINE, "Plain"): "plan answer num_free",
}
_ODD = ("Handle", "Number", "Id", "further", "Equal")
_CASES = [
    (level, base, method, kind)
    for (level, base), methods in _METHODS.items()
    for method in methods.split()
    for kind in _ODD
]
_UNREADABLE = re.compile(r"object at 0x|poolproof_target|internal")


def _sentences(folder: Path, level: Level, base: str, method: str, kind: str) -> list[str]:
    names = {"BASE": base, "METHOD": method, "KIND": kind}
    source = re.sub("|".join(names), lambda found: names[found[0]], _SOURCE)
    (folder / "odd.py").write_text(source, encoding="utf-8")
    target = load_target(f"{folder / 'odd.py'}:Odd")
    runs = _KINDS.get(level) or layout_kind(level, target.layouts[0].name)
    silent: Any = SimpleNamespace(bump=lambda *_: None, mark=lambda *_: None)
    result = run_chunk(target, Chunk(runs, 0, 0, 4), silent)
    found = [trace.violation for trace in result.failures.values()]
    return [violation.sentence for violation in found if violation is not None]


@pytest.mark.some(8)
@pytest.mark.parametrize(("level", "base", "method", "kind"), _CASES)
def test_what_a_target_answers_is_shown_by_value_and_class(
    tmp_path: Path, level: Level, base: str, method: str, kind: str
) -> None:
    sentences = _sentences(tmp_path, level, base, method, kind)
    assert [text for text in sentences if _UNREADABLE.search(text)] == []
    if kind == "Handle":
        # What stands for no number is named, by the class and the file that its user knows.
        assert sentences
    assert all("odd.Handle" in text for text in sentences if "Handle" in text)


SAID = {
    (Level.POOL, "NativeDictPool", "free_neighbours", "further"): "is linked between",
    (Level.POOL, "NativeDictPool", "num_free", "Handle"): "num_free() answered",
    (Level.POOL, "Merges", "cache", "Number"): "remapped block 1 to 2, which does not carry",
    (Level.POOL, "Merges", "cache", "Equal"): "to an object of class odd.Equal, which does not",
    (Level.MANAGER, "NativeSequenceManager", "block_table", "Handle"): "block_table(A) answered",
}


@pytest.mark.parametrize(("case", "words"), SAID.items(), ids=["-".join(key) for key in SAID])
def test_a_sentence_names_the_method_and_the_value(
    tmp_path: Path, case: tuple[Level, str, str, str], words: str
) -> None:
    assert any(words in text for text in _sentences(tmp_path, *case))


def test_a_method_behind_a_decorator_keeps_its_name() -> None:
    def wrapper(_: Any) -> str:
        return "none"

    target: Any = type("Decorated", (), {"num_free": wrapper})()
    with pytest.raises(
        ViolationError, match=r"num_free\(\) answered 'none'; it must answer an int"
    ):
        read_count(target.num_free)

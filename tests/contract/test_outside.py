"""What is written of a target's objects, exceptions and names is safe and short."""

from typing import Any

import pytest

from poolproof.contract.outside import class_name, cut, module_of_file, printable, said_by, shown
from poolproof.contract.violation import Severity, Violation

HALF = "\ud83d"
RED = "\x1b[31m"
REVERSED = "\u202e"


class ReprIsCalledError(Exception):
    """The one thing that must not happen."""


class Hostile:
    def __repr__(self) -> str:
        raise ReprIsCalledError

    def __str__(self) -> str:
        raise ReprIsCalledError

    def __len__(self) -> int:
        raise ReprIsCalledError

    def __iter__(self) -> Any:
        raise ReprIsCalledError

    @property
    def __class__(self) -> Any:
        raise ReprIsCalledError

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class HostileInt(int):
    __repr__ = __str__ = __index__ = __len__ = Hostile.__repr__


class HostileText(str):
    __slots__ = ()
    __repr__ = __str__ = __len__ = __iter__ = __getitem__ = Hostile.__repr__


class HostileList(list):
    __repr__ = __str__ = __len__ = __iter__ = __getitem__ = Hostile.__repr__


class HostileDict(dict):
    __repr__ = __str__ = __len__ = __iter__ = items = keys = __getitem__ = Hostile.__repr__


class LyingMeta(type):
    __name__ = "\x1b[2J"

    def __getattribute__(cls, name: str) -> Any:
        raise ReprIsCalledError


class HasLyingClass(metaclass=LyingMeta):
    pass


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -7, 1.5, "a", 'it\'s "so"', b"\x00\xff", [], [1, [2, "x"]], (), (1,),
     (1, 2), {}, {"answer": [1, None]}, float("inf")],
)  # fmt: skip
def test_built_in_values_are_shown_as_python_writes_them(value: object) -> None:
    assert shown(value) == repr(value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Hostile, f"an object of class {__name__}.Hostile"),
        (lambda: HostileInt(3), f"{__name__}.HostileInt(3)"),
        (lambda: HostileText("abc"), f"{__name__}.HostileText('abc')"),
        (
            lambda: HostileList([1, Hostile()]),
            f"HostileList([1, an object of class {__name__}.Hostile])",
        ),
        (
            lambda: HostileDict(a=Hostile()),
            f"HostileDict({{'a': an object of class {__name__}.Hostile}})",
        ),
        (lambda: HasLyingClass(), f"an object of class {__name__}.HasLyingClass"),  # noqa: PLW0108 -- pytest asks a class for its name
        (object, "an object of class object"),
    ],
)
def test_of_other_objects_no_method_is_called(make: Any, words: str) -> None:
    assert shown(make()).endswith(words)


@pytest.mark.parametrize("size", [10**4, 10**6, 5 * 10**7])
@pytest.mark.parametrize("kind", [str, bytes, list, tuple, HostileText, HostileList])
def test_what_is_shown_is_short_whatever_the_size(kind: Any, size: int) -> None:
    if kind in (list, tuple, HostileList):
        size //= 50
    made = {bytes: lambda: b"x" * size, str: lambda: "x" * size, HostileText: lambda: "x" * size}
    value = kind(made.get(kind, lambda: [12345] * size)())
    text = shown(value)
    assert len(text) <= 500
    assert f"{size:,}" in text


def test_deep_and_wide_nests_and_those_that_hold_themselves_are_short() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    wide: Any = 0
    for _ in range(6):
        wide = [wide] * 100
    itself: list[Any] = []
    itself += [itself, {"again": itself}]
    assert all(len(shown(value)) <= 500 for value in (deep, wide, itself))
    while deep:  # or else Python's own destructor goes 100,000 deep
        deep = deep[0]


def test_numbers_of_thousands_of_digits_are_named_by_their_size() -> None:
    assert shown(10**5_000) == "an int of 16,610 bits"
    assert shown(HostileInt(10**5_000)).endswith("HostileInt(an int of 16,610 bits)")


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        (f"a{HALF}b", "a\\ud83db"),
        (f"{RED}all is well", "\\x1b[31mall is well"),
        (f"{REVERSED}dlrow", "\\u202edlrow"),
        ("two\nlines", "two\nlines"),
        ("back\rover", "back\\rover"),
        ("größer, 大きい, 🙂", "größer, 大きい, 🙂"),
    ],
)
def test_texts_are_shown_and_not_obeyed(text: str, safe: str) -> None:
    assert printable(text) == safe
    assert cut(text) == safe


def test_a_long_text_is_cut_and_says_how_long_it_was() -> None:
    assert cut("x" * 50_000_000, 10) == "xxxxxxxxxx ... (50,000,000 characters)"
    assert cut("x" * 10, 10) == "x" * 10


def test_an_exception_may_have_any_message_or_none_that_can_be_had() -> None:
    class CannotSayError(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    class SaysNoTextError(Exception):
        def __str__(self) -> Any:
            return 3  # noqa: PLE0307 -- the point

    assert said_by(ValueError(f"{RED}{HALF}")) == "\\x1b[31m\\ud83d"
    assert said_by(CannotSayError()) == "(its message cannot be shown)"
    assert said_by(SaysNoTextError()) == "(its message cannot be shown)"
    assert len(said_by(ValueError("x" * 1_000_000))) < 2_100


def test_a_class_with_a_name_of_a_megabyte_is_named_in_short() -> None:
    cls = type("X" * 1_000_000, (), {"__module__": f"{HALF}m"})
    assert len(class_name(cls())) < 250
    assert class_name(cls()).startswith("\\ud83dm.XXX")
    assert class_name(3) == "int"


@pytest.mark.parametrize(
    ("module", "shown_as"),
    [
        (module_of_file("pool", "1a2b3c4d"), "pool.Block"),
        (module_of_file("my_pool", "1a2b3c4d"), "my_pool.Block"),
        ("poolproof_target_", "poolproof_target_.Block"),
        ("engine.blocks", "engine.blocks.Block"),
    ],
)
def test_a_class_of_a_file_is_named_by_the_file(module: str, shown_as: str) -> None:
    assert class_name(type("Block", (), {"__module__": module})()) == shown_as


def test_a_violation_holds_only_what_can_be_written_anywhere() -> None:
    found = Violation(
        f"CRASH{RED}",
        Severity.CRASH,
        f"{HALF}{'x' * 1_000_000}",
        frames=tuple(f"{HALF}file.py:{number} f{'g' * 1_000_000}" for number in range(1_000)),
    )
    assert found.invariant == "CRASH\\x1b[31m"
    assert found.sentence.startswith("\\ud83dxxx")
    assert len(found.sentence) < 2_100
    assert len(found.frames) <= 20
    assert all(len(frame) < 350 and frame.isprintable() for frame in found.frames)


def test_a_method_of_int_in_another_class_makes_no_number():
    class Odd:
        __index__ = int.__index__

    assert shown(Odd()).endswith("test_outside.Odd")
    assert shown(Odd()).startswith("an object of class ")

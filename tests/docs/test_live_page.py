"""The example of docs/live.md for engines of others runs as it stands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import poolproof

PAGE = Path(__file__).parents[2] / "docs" / "live.md"


@dataclass
class Computed:
    id: str
    tokens: list[int]
    first: int
    count: int
    blocks: tuple[int, ...]
    is_new: bool


@dataclass
class Step:
    requests: list[Computed]
    ended: tuple[str, ...] = ()


class Engine:
    """Two requests, the second of which finds the first block of the first."""

    num_blocks = 8

    def __init__(self, tokens):
        self._tokens = tokens

    def steps(self):
        text = list(range(20))
        yield Step([Computed("a", text, 0, 20, (1, 2), True)])
        yield Step([Computed("a", [*text, 7], 20, 1, (), False)])
        yield Step([Computed("b", self._tokens, 16, 4, (1, 3), True)], ("a",))


def example():
    (code,) = [
        text
        for text in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
        if "RecordingWriter" in text
    ]
    return code


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (list(range(20)), "no sequence read a slot that was not computed for it in 3 steps"),
        ([99, *range(1, 20)], "step 3: request "),
    ],
)
def test_the_example_records_what_an_audit_judges(tmp_path, monkeypatch, tokens, says):
    monkeypatch.chdir(tmp_path)
    exec(compile(example(), str(PAGE), "exec"), {"engine": Engine(tokens)})  # noqa: S102 -- ours
    assert poolproof.audit("steps.gz").sentence().startswith(says)

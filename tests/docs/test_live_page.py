"""The examples of docs/live.md run as they stand, beside an engine of a few lines."""

import re
from pathlib import Path
from types import SimpleNamespace

import poolproof

PAGE = (Path(__file__).parents[2] / "docs" / "live.md").read_text(encoding="utf-8")


def example(heading: str) -> str:
    """The first block of Python below a heading of the page."""
    found = re.search(rf"^#+ {heading}\n.*?^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


class Engine:
    """Two requests that begin alike; the second may be given a wrong block of the first."""

    num_blocks = 8

    def __init__(self, *, block_of_second: int) -> None:
        self.block_of_second = block_of_second

    def steps(self):
        prompt = list(range(20))
        yield self.step("a", prompt, 0, [1, 2])
        yield self.step("b", [*prompt[:16], 7], 16, [self.block_of_second, 3])

    def step(self, name, tokens, first, blocks):
        request = SimpleNamespace(
            id=name, tokens=tokens, first=first, count=len(tokens) - first, blocks=tuple(blocks),
            is_new=True,
        )  # fmt: skip
        return SimpleNamespace(requests=[request], ended=[])


def test_any_engine_is_watched(capsys):
    exec(example("Watch any engine"), {"engine": Engine(block_of_second=1)})  # noqa: S102 -- the page's own
    assert capsys.readouterr().out == ""
    exec(example("Watch any engine"), {"engine": Engine(block_of_second=2)})  # noqa: S102 -- the same
    assert capsys.readouterr().out.startswith("DATA step 2: request ")


def test_any_engine_is_recorded_and_audited(folder):
    exec(example("From any engine"), {"engine": Engine(block_of_second=2)})  # noqa: S102 -- the page's own
    (found,) = poolproof.audit("steps.gz").findings
    assert (found.invariant, found.step) == ("DATA", 2)

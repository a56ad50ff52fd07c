"""One bug of a pool is accepted and a worse one comes in: the gate has to close.

The budgets of the level are cut down, as in test_certify.py; the pools are planted in a file of one
name, as a commit changes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from poolproof.certification.depths import BUDGETS
from poolproof.cli.command_line import main
from poolproof.stateful_tests import settings

ACCEPTED = """
            if block >= self.num_blocks:
                raise IndexError("list index out of range")
"""
"""A crash after cache([1], [a]), where block 1 does not exist."""

SILENT = """
            if 0 <= block < self.num_blocks and not self.ref_count(block):
                self._cached.add_full(block, hashes[0])
                return
"""
"""Data of another request after cache([0], [a]), where nobody holds block 0."""

UNSEEN = """
            if 0 <= block < self.num_blocks and not self.ref_count(block):
                return
"""
"""The same goes through and leaves nothing that could be seen: as bad as a crash, and no crash."""


@pytest.fixture(scope="module")
def _small_budget() -> Iterator[None]:
    small = replace(
        BUDGETS["quick"],
        pool_chunks=3, chain_chunks=1, queue_chunks=1, shortest_states=300,
        more_chunks_after_failure=1, production=None,
        scopes=(), sequences=(), queue_blocks=0,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BUDGETS, "quick", small)
        patch.setitem(settings.EXAMPLES, "quick", 20)
        yield


def certified(*bugs: str, options: tuple[str, ...] = (), output: str = "main.json") -> Result:
    """Certify a pool in pool.py with these bugs in its `cache`."""
    Path("pool.py").write_text(
        "from poolproof.impl.block_pool import BlockPool\n\n\n"
        "class Pool(BlockPool):\n"
        "    def cache(self, block_ids, hashes, *, group=0):\n"
        f"        for block in block_ids:\n{''.join(bugs) or '            pass'}\n"
        "        super().cache(block_ids, hashes, group=group)\n"
    )
    arguments = ("certify", "pool.py:Pool", "--depth", "quick", "--workers", "1")
    return CliRunner().invoke(main, [*arguments, "--json", output, *options])


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory, _small_budget: None) -> Path:
    """The folder in which the pool with the first bug was certified, and that bug accepted."""
    folder = tmp_path_factory.mktemp("before")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert certified(ACCEPTED, options=("--report", "report")).exit_code == 1
    entries = (folder / "report" / "known.toml").read_text().replace('""', '"see #12"')
    entries = entries.replace('until = "see #12"', "until = 9999-01-01")
    (folder / "known.toml").write_text(entries)
    return folder


@pytest.fixture(autouse=True)
def _in_the_folder(before: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(before)


def forms_in(path: str) -> set[tuple[str, str, str]]:
    """Status, severity and misuse of every form of every finding of a certificate."""
    found = json.loads(Path(path).read_text())["findings"]
    forms = [form for finding in found for form in (finding, *finding["forms"])]
    return {(form["status"], form["severity"], form["misuse"]) for form in forms}


def plain_driver(path: str) -> dict[str, Any]:
    """The stage of a certificate in which the plain driver gives opaque hashes."""
    stages = json.loads(Path(path).read_text())["stages"]
    return next(s for s in stages if s["stage"] == "opaque hashes, plain driver")


CRASHES = ("crash", "block beyond the pool: raised another error")


def test_the_bug_alone_is_refused() -> None:
    assert forms_in("main.json") == {("new", *CRASHES)}


@pytest.mark.some(0)
def test_what_is_accepted_passes_and_does_not_shorten_the_search() -> None:
    again = certified(ACCEPTED, options=("--baseline", "main.json"), output="again.json")
    assert again.exit_code == 0, again.output
    assert plain_driver("main.json")["runs"] < plain_driver("again.json")["runs"] == 300
    assert plain_driver("main.json")["facts_required"] == []
    assert plain_driver("again.json")["facts_required"]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("worse", "option", "shown"),
    [
        (SILENT, "--baseline", ("wrong-data-of-another", "block not held: accepted")),
        (UNSEEN, "--baseline", ("crash", "block not held: accepted")),
        (SILENT, "--known", ("wrong-data-of-another", "block not held: accepted")),
    ],
)
def test_a_worse_bug_of_the_same_call_is_new(
    worse: str, option: str, shown: tuple[str, str]
) -> None:
    accepts = {"--baseline": "main.json", "--known": "known.toml"}[option]
    both = certified(ACCEPTED, worse, options=(option, accepts), output="both.json")
    assert both.exit_code == 1, both.output
    status = option.removeprefix("--")
    assert {(status, *CRASHES), ("new", *shown)} <= forms_in("both.json")

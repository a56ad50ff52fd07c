"""Hostile inputs of every kind: each must end in a message and the right exit status.

Valid inputs are mutated, and families that are hostile by hand stand beside them; all of it comes
out of a seed. Each runs the command line in a process of its own and breaks a rule if it shows a
traceback or a bug of ours, has another exit status than such an input can have, loses an output
that it was to write, takes too long, or leaves a process behind.

    python benchmarks/hostile_inputs.py --count 200            # all kinds, prints what broke
    python benchmarks/hostile_inputs.py --count 20 trace known # two kinds
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hostile_samples import KINDS, Input
from record import add_destination, surroundings, write_record

# Imported once, and not in each forked command.
from poolproof.certification.certify import certify  # noqa: F401 -- see above
from poolproof.cli.command_line import main
from poolproof.harness.isolation.process_tree import adopt_orphans, children_of, end_tree

PATIENCE_S = 300.0

_ORDERS = frozenset(map(chr, (*range(9), *range(0xB, 0x20), *range(0x7F, 0xA0), 0x202E)))
"""What a terminal obeys, but for tabs and ends of lines."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that an input broke."""

    kind: str
    number: int
    name: str
    rule: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended; `left` are the processes that it left running."""

    status: int
    output: str
    seconds: float
    left: int


def run(arguments: list[str], folder: Path, patience_s: float = PATIENCE_S) -> Ended:
    """The command line in a forked process, in a folder; what it leaves behind is ended."""
    adopt_orphans()
    before = set(children_of(os.getpid()))
    with tempfile.TemporaryFile() as printed:
        began = time.monotonic()
        pid = os.fork()
        if not pid:
            _be_command(arguments, folder, printed.fileno())
        status = _waited_for(pid, began + patience_s)
        seconds = time.monotonic() - began
        left = _left_behind(before)
        printed.seek(0)
        output = printed.read().decode("utf-8", errors="backslashreplace")
    return Ended(status, output, seconds, left)


def _be_command(arguments: list[str], folder: Path, output: int) -> None:
    status = 99
    try:
        os.setsid()
        os.chdir(folder)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            raw = io.FileIO(descriptor, "w", closefd=False)
            setattr(sys, name, io.TextIOWrapper(raw, write_through=True))
        try:
            main(arguments, prog_name="poolproof")
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except BaseException:  # noqa: BLE001 -- it is what is looked for
            traceback.print_exc()
    finally:
        os._exit(status)


def _waited_for(pid: int, until: float) -> int:
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    end_tree(pid)
    os.waitpid(pid, 0)
    return 124


def _left_behind(before: set[int]) -> int:
    """How many processes the command left running, which are ended here."""
    left = 0
    while strays := [child for child in children_of(os.getpid()) if child not in before]:
        for stray in strays:
            ended, _ = os.waitpid(stray, os.WNOHANG)
            if not ended:
                left += 1
                end_tree(stray)
                os.waitpid(stray, 0)
    return left


def rules_broken(one: Input, ended: Ended, folder: Path) -> Iterator[tuple[str, str]]:
    """The rules that a run of this input broke, each with what shows it."""
    last = "\n".join(ended.output.splitlines()[-4:])
    if ended.status == 124:
        yield "takes too long", f"{ended.seconds:.0f} s"
    elif ended.status not in one.statuses:
        yield "wrong status", f"{ended.status}, not one of {sorted(one.statuses)}: {last}"
    if "Traceback (most recent call last)" in ended.output:
        yield "traceback", last
    if "this is a bug in Poolproof" in ended.output:
        yield "bug of ours", last
    written = [folder / name for name in one.outputs if (folder / name).is_file()]
    for name, text in [("the screen", ended.output), *map(_name_and_text, written)]:
        # The usual report of a certification has 20,000 characters.
        if len(text) > 1_000_000 or not _ORDERS.isdisjoint(text):
            yield "output not made safe", f"{name}: {len(text):,} characters"
    lost = [name for name in one.outputs if not (folder / name).is_file()]
    said = ended.output.strip() or (one.outputs and not lost)
    if not said and ended.status != 0:
        yield "no message", ""
    if ended.status in {0, 1}:
        for name in lost:
            yield "output lost", name
    if ended.left:
        yield "left running", f"{ended.left} processes"


def _name_and_text(path: Path) -> tuple[str, str]:
    return path.name, path.read_text(encoding="utf-8", errors="backslashreplace")


def try_kind(
    kind: str, count: int, seed: int, heard: Callable[[Broken], object] = lambda _: None
) -> tuple[list[Broken], Counter[int], float]:
    """Run `count` inputs of a kind: what broke, how often each status came, the longest run."""
    broken: list[Broken] = []
    statuses: Counter[int] = Counter()
    longest_s = 0.0
    for number in range(count):
        with tempfile.TemporaryDirectory(prefix="hostile-") as name:
            folder = Path(name)
            one = KINDS[kind](random.Random(f"{seed}/{kind}/{number}"), number, folder)
            ended = run(list(one.arguments), folder)
            statuses[ended.status] += 1
            longest_s = max(longest_s, ended.seconds)
            for rule, detail in rules_broken(one, ended, folder):
                broken.append(Broken(kind, number, one.name, rule, detail))
                heard(broken[-1])
            with contextlib.suppress(OSError):
                shutil.rmtree(folder / "read-only", ignore_errors=True)
    return broken, statuses, longest_s


def command(arguments: list[str] | None = None) -> int:
    """The exit status: 1 if a rule was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS], default=[])
    parser.add_argument("--count", type=int, default=20, help="inputs of each kind")
    parser.add_argument("--seed", type=int, default=0)
    add_destination(parser, "hostile_inputs")
    asked = parser.parse_args(arguments)
    found = {}
    total = 0
    for kind in asked.kinds or KINDS:
        began = time.monotonic()
        broken, statuses, longest_s = try_kind(
            kind, asked.count, asked.seed,
            lambda one: print(
                f"  {one.kind} {one.number} {one.name}: {one.rule}: {one.detail}", flush=True
            ),
        )  # fmt: skip
        total += len(broken)
        seconds = time.monotonic() - began
        shown = ", ".join(f"status {status}: {n}" for status, n in sorted(statuses.items()))
        print(
            f"{kind:9} {asked.count} inputs, {len(broken)} rules broken; {shown}; "
            f"longest {longest_s:.1f} s, all {seconds:.0f} s",
            flush=True,
        )
        found[kind] = {
            "inputs": asked.count,
            "broken": [f"{one.number} {one.name}: {one.rule}" for one in broken],
            "statuses": {str(status): n for status, n in sorted(statuses.items())},
            "longest_s": round(longest_s, 1),
            "seconds": round(seconds, 1),
        }
    written = write_record(asked.json, {**surroundings(), "seed": asked.seed, "kinds": found})
    return 1 if total or not written else 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(command())

"""The life of a watch: on, told, counted, and switched off by whatever goes wrong in it.

Every call that a tap makes goes through `guarded`: an exception of ours is logged once, with where
it came from, the taps are taken out, and the engine never sees it. The only exception that gets
through is `WatchViolation`, in the mode `raise`, which is there for that.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import multiprocessing.util
import os
import platform
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from poolproof.watch.budget import ReadBudget
from poolproof.watch.digests import Digests
from poolproof.watch.findings import LiveFinding, request_name
from poolproof.watch.folder import WatchFolder, stamp
from poolproof.watch.live_memory import LiveMemory
from poolproof.watch.metrics import serve_metrics
from poolproof.watch.settings import WatchSettings

__all__ = ["LOGGER", "SERVER_VARIABLE", "WatchViolation", "Watcher", "say"]

LOGGER = logging.getLogger("poolproof.watch")
SERVER_VARIABLE = "POOLPROOF_WATCH_SERVER"
"""Process id of the process that loaded the plugin first; its children inherit it."""
_RING = 64
Result = TypeVar("Result")


class WatchViolation(Exception):  # noqa: N818 -- what it says is a violation, no error of ours
    """In the mode `raise`: the engine broke an invariant, and is to stop."""


class Watcher:
    """Counts, findings, files and the switch of one watch.

    `facts` is what the status row says of the engine (`engine`, `scheduler`, `blocks`, `groups`,
    `left_out`, `attached`). `pool` gives (live, reclaimable) blocks. `describe` turns an item of
    `ring` into a line of `steps.jsonl`. `untap` takes the taps out.
    """

    def __init__(
        self,
        settings: WatchSettings,
        memory: LiveMemory,
        digests: Digests,
        facts: dict[str, Any],
        *,
        pool: Callable[[], tuple[int, int]],
        describe: Callable[[Any], dict[str, Any]],
        untap: Callable[[], None],
    ) -> None:
        self.settings = settings
        self.memory: LiveMemory | None = memory
        self.counts = memory.counts
        self.violations: Counter[str] = Counter()
        self.findings: deque[LiveFinding] = deque(maxlen=max(1, settings.most_findings))
        self.budget = ReadBudget(settings.budget)
        self.ring: deque[Any] = deque(maxlen=_RING)
        self.lost = 0
        self.is_on = True
        self._state = "watching"
        self._reason: str | None = None
        self._digests, self._facts = digests, facts
        self._pool, self._describe, self._untap = pool, describe, untap
        self._num_written = 0
        self._started = stamp()
        self._folder = WatchFolder(
            _folder_of(settings.folder),
            self.status,
            tell=lambda text: say(logging.WARNING, text),
            line=lambda: say(logging.INFO, self.line()),
            line_every_s=settings.every_s,
            failed=self.switch_off,
        )
        self.path = self._folder.path
        say(logging.INFO, self._start_line())
        if settings.port is not None:
            problem = serve_metrics(settings.port, settings.folder)
            if problem:
                say(logging.WARNING, problem)
        # A child of multiprocessing ends without atexit; anything else without Finalize.
        atexit.register(self.end)
        multiprocessing.util.Finalize(None, self.end, exitpriority=100)

    def guarded(self, call: Callable[..., Result], *arguments: Any) -> Result | None:
        """What `call` returns; None where the watch is off, or is switched off by it."""
        if not self.is_on:
            return None
        answer = None
        try:
            began_ns = time.perf_counter_ns()
            answer = call(*arguments)
            self.budget.spend(time.perf_counter_ns() - began_ns)
        except WatchViolation:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever it is, the engine must not see it
            self.switch_off(error)
        return answer

    def step_is_over(self) -> None:
        """The budget decides how much is compared in the next steps."""
        sentence = self.budget.step()
        if sentence and self.memory is not None:
            say(logging.WARNING, sentence)
        if self.memory is not None:
            self.memory.stride = self.budget.stride

    def report(self, found: Sequence[LiveFinding], actions: Sequence[str]) -> None:
        """Findings, and what was done about each: log, write, and in the mode `raise`, raise."""
        for finding, action in zip(found, actions, strict=True):
            self.violations[finding.invariant] += 1
            if sum(self.violations.values()) > self.settings.most_findings:
                continue
            self.findings.append(finding)
            self._num_written += 1
            say(logging.ERROR, f"{finding.invariant}: {finding.sentence} ({action})")
            line = self._line_of(finding, action)
            self._folder.add_finding(line)
            if finding.number <= 20:
                incident = {
                    "format": "poolproof-incident", "version": 1,
                    "finding": line, "status": self.status(),
                }  # fmt: skip
                steps = [self._describe(item) for item in self.ring]
                self._folder.add_incident(finding.number, incident, steps)
        if found and self.settings.mode == "raise":
            raise WatchViolation(found[0].sentence)

    def switch_off(self, error: Exception) -> None:
        """Something of ours failed: say so once, leave the engine as it was without us."""
        if not self.is_on:
            return
        self.is_on = False
        self._state, self._reason = "off", f"{type(error).__name__}: {error}"[:500]
        for clean_up in (self._untap, self._drop):
            with contextlib.suppress(Exception):  # one line is said, whatever else fails
                clean_up()
        with contextlib.suppress(Exception):
            say(
                logging.ERROR,
                f"the watch has switched itself off, the engine goes on unwatched: {self._reason}",
                error,
            )
            self._folder.close(waits=False)

    def end(self) -> None:
        """The scheduler is shut down, or the process ends: the last row."""
        with contextlib.suppress(Exception):  # nothing is left to be told
            if self._state == "watching":
                self._state = "ended"
                self.is_on = False
                say(logging.INFO, self.line())
            self._folder.close()

    def line(self) -> str:
        """The status in one line."""
        counts, budget = self.counts, self.budget
        live, reclaimable = self._blocks()
        found = ", ".join(f"{name} {number}" for name, number in self.violations.items())
        return (
            f"{self._state}: {counts.steps} steps, {counts.computed_tokens} tokens, "
            f"{counts.admissions} admissions; {self._checked_share():.1%} of reads compared; "
            f"{budget.step_ms:.3f} ms a step, {budget.share:.1%} of the time; blocks: {live} live, "
            f"{reclaimable} reclaimable, {self.lost} lost; "
            + (f"violations: {found}" if found else "no violation")
        )

    def status(self) -> dict[str, Any]:
        """The row of `status.json`."""
        facts, budget = self._facts, self.budget
        live, reclaimable = self._blocks()
        return {
            "format": "poolproof-watch",
            "version": 1,
            "state": self._state,
            "reason": self._reason,
            "mode": self.settings.mode,
            "pid": os.getpid(),
            "server": int(os.environ.get(SERVER_VARIABLE) or os.getpid()),
            "started": self._started,
            "written": stamp(),
            "versions": {
                "poolproof": _own_version(),
                "engine": facts["engine"],
                "python": platform.python_version(),
            },
            **{
                name: facts[name]
                for name in ("scheduler", "attached", "blocks", "groups", "left_out")
            },
            "tokens_kept": self.settings.keeps_tokens,
            "line": self.line(),
            "counts": asdict(self.counts),
            "checked_share": self._checked_share(),
            "cost": {
                "step_ms": budget.step_ms,
                "share": budget.share,
                "budget": budget.budget,
                "sampling": budget.stride,
            },
            "pool": {"live": live, "reclaimable": reclaimable, "lost": self.lost},
            "violations": dict(self.violations),
            "findings": {
                "written": self._num_written,
                "dropped": sum(self.violations.values()) - self._num_written,
            },
            "last_step": self.counts.steps,
        }

    def _start_line(self) -> str:
        facts = self._facts
        left_out = "; ".join(facts["left_out"])
        return (
            f"watching {facts['scheduler']} of {facts['engine']} (mode {self.settings.mode}, "
            f"{facts['blocks']} blocks, attached at {facts['attached']}), files in {self.path}"
            + (f"; left out: {left_out}" if left_out else "")
        )

    def _line_of(self, finding: LiveFinding, action: str) -> dict[str, Any]:
        def name(number: int | None) -> str | None:
            return None if number is None else request_name(number)

        def shown(digest: int | None) -> str | None:
            return None if digest is None else self._digests.shown(digest)

        line: dict[str, Any] = {
            "number": finding.number, "time": stamp(), "step": finding.step,
            "invariant": finding.invariant, "sentence": finding.sentence, "action": action,
            "reader": name(finding.reader), "writer": name(finding.writer),
            "written_in": finding.written_in, "group": finding.group, "block": finding.block,
            "slot": finding.slot, "position": finding.position, "blocks": list(finding.blocks),
            "wanted": shown(finding.wanted), "found": shown(finding.found),
            "because_of": finding.because_of,
        }  # fmt: skip
        if self.settings.keeps_tokens:
            line["tokens"] = self._facts["tokens_of"](finding)
        return line

    def _blocks(self) -> tuple[int, int]:
        return self._pool()

    def _checked_share(self) -> float:
        counts = self.counts
        asked = counts.checked_reads + counts.skipped_reads
        return counts.checked_reads / asked if asked else 1.0

    def _drop(self) -> None:
        self.memory = None
        self.ring.clear()


def say(level: int, text: str, error: Exception | None = None) -> None:
    """Log a line; where nobody has set up logging for it, on standard error.

    Where that is closed the line is lost, and nothing else.
    """
    if not LOGGER.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s poolproof: %(message)s"))
        LOGGER.addHandler(handler)
        LOGGER.setLevel(logging.INFO)
        LOGGER.propagate = False
    with contextlib.suppress(Exception):  # handlers of others, streams that are closed
        LOGGER.log(level, "%s", text, exc_info=error)


def _own_version() -> str:
    from poolproof import __version__

    return __version__


def _folder_of(base: Path) -> Path:
    """A folder of its own, named by start, server and process."""
    server = os.environ.get(SERVER_VARIABLE) or str(os.getpid())
    name = f"{stamp(compact=True)}-{server}-{os.getpid()}"
    path, number = base / name, 1
    while path.exists():
        number += 1
        path = base / f"{name}-{number}"
    return path

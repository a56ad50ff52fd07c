"""Which commit made a trace fail: `git bisect` in a worktree of its own, a replay at each stop.

The user's checkout and its branch are left alone. Each replay is a process of its own, so that no
commit is judged by code of another.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from poolproof.contract.errors import PoolproofError

__all__ = ["BisectError", "CommitSearch", "FirstBad", "Stop"]


class BisectError(PoolproofError):
    """A search that cannot be begun or ended; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Stop:
    """One commit that was tried: whether the trace fails there, None where nobody can say."""

    commit: str
    subject: str
    fails: bool | None
    why: str = ""

    @property
    def words(self) -> str:
        """The stop in a line."""
        outcome = {True: "fails", False: "holds", None: "cannot be replayed"}[self.fails]
        return (
            f"{self.commit[:10]}  {outcome:<18}  {self.subject}{f' ({self.why})' * bool(self.why)}"
        )


@dataclass(frozen=True, slots=True)
class FirstBad:
    """The first commit at which the trace fails; several, where those between cannot be tried."""

    commits: tuple[str, ...]
    description: str


@dataclass(frozen=True, slots=True)
class CommitSearch:
    """A search in the checkout around a folder.

    `folder` is where the trace's target is named from, and `trace` its file; `target` replaces the
    one of the trace. `build` is a shell command that is run at each commit first.
    """

    folder: Path
    trace: Path
    target: str | None = None
    build: str | None = None

    def find(self, good: str, bad: str, heard: Callable[[Stop], None]) -> FirstBad:
        """The first bad commit after `good`, up to `bad`; `heard` is told of each stop.

        Raises BisectError.
        """
        first, last = self._ends(good, bad)
        with self._worktree(last) as worktree:
            self._require_a_difference(worktree, first, last, heard)
            said = self._git(worktree, "bisect", "start", last, first)
            while "is the first bad commit" not in said:
                stop = self._try(worktree, self._git(worktree, "rev-parse", "HEAD"))
                heard(stop)
                word = {True: "bad", False: "good", None: "skip"}[stop.fails]
                said = self._git(worktree, "bisect", word, may_fail=stop.fails is None)
                if "only 'skip'ped commits left" in said:
                    return self._among(worktree, said)
            found = self._git(worktree, "rev-parse", "refs/bisect/bad")
            return FirstBad((found,), self._described(worktree, found))

    def _ends(self, good: str, bad: str) -> tuple[str, str]:
        """The two commits. Raises BisectError where a search between them means nothing."""
        if self._git(self.folder, "rev-parse", "--is-inside-work-tree", may_fail=True) != "true":
            raise BisectError(
                f"{self.folder} is no git checkout; change to the folder from which "
                "the trace names its target"
            )
        changed = self._git(self.folder, "status", "--porcelain", "--untracked-files=no")
        if changed:
            name = changed.splitlines()[0].split(maxsplit=1)[-1]
            raise BisectError(
                f"the checkout has changes that no commit has ({name}): commit or stash them; only "
                "commits are tried"
            )
        first, last = self._commit("--good", good), self._commit("--bad", bad)
        if first == last:
            raise BisectError(f"good and bad do not differ: {good} and {bad} are one commit")
        if self._git(self.folder, "merge-base", first, last, may_fail=True) != first:
            raise BisectError(
                f"{bad} does not descend from {good}; name a good commit before it, such as what "
                f"`git merge-base {good} {bad}` prints"
            )
        return first, last

    def _commit(self, option: str, name: str) -> str:
        found = self._git(
            self.folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", may_fail=True
        )
        if not found:
            raise BisectError(f"{option} {name} is no commit of this checkout; see `git log`")
        return found

    def _require_a_difference(
        self, worktree: Path, first: str, last: str, heard: Callable[[Stop], None]
    ) -> None:
        ends = {
            name: self._try(worktree, commit) for name, commit in (("bad", last), ("good", first))
        }
        for name, stop in ends.items():
            heard(stop)
            if stop.fails is None:
                where = f"the {name} commit {stop.commit[:10]}"
                raise BisectError(f"the trace cannot be replayed at {where}: {stop.why}")
        if ends["good"].fails == ends["bad"].fails:
            both = "fails at both" if ends["bad"].fails else "holds at both"
            other = "an older good commit" if ends["bad"].fails else "a commit at which it fails"
            raise BisectError(
                f"good and bad do not differ: the trace {both}; name {other}. If the target is "
                "imported from elsewhere, set PYTHONPATH to its folder within the checkout"
            )
        if ends["good"].fails:
            raise BisectError(
                "the trace fails at the good commit and holds at the bad one: swap them"
            )

    @contextmanager
    def _worktree(self, commit: str) -> Iterator[Path]:
        """A worktree that is removed afterwards."""
        with tempfile.TemporaryDirectory(prefix="poolproof-bisect-") as scratch:
            place = Path(scratch) / "checkout"
            self._git(self.folder, "worktree", "add", "--quiet", "--detach", str(place), commit)
            try:
                yield place
            finally:
                self._git(self.folder, "worktree", "remove", "--force", str(place), may_fail=True)

    def _try(self, worktree: Path, commit: str) -> Stop:
        """Replay the trace at a commit."""
        self._git(worktree, "checkout", "--quiet", "--detach", "--force", commit)
        subject = self._git(worktree, "log", "-1", "--format=%s", commit)
        folder = worktree / self._git(self.folder, "rev-parse", "--show-prefix")
        if not folder.is_dir():
            return Stop(commit, subject, None, "the folder is not there yet")
        if self.build is not None:
            built = self._run(["sh", "-c", self.build], folder)
            if built.returncode != 0:
                return Stop(commit, subject, None, f"{shlex.quote(self.build)} failed")
        command = [sys.executable, "-m", "poolproof", "replay", str(self.trace)]
        command += [] if self.target is None else ["--target", self.target]
        done = self._run(command, folder)
        if done.returncode in (0, 1):
            return Stop(commit, subject, done.returncode == 1)
        lines = done.stderr.strip().splitlines() or ["it ended without a word"]
        why = lines[-1].removeprefix("poolproof: ").replace(f"{worktree.resolve()}/", "")
        return Stop(commit, subject, None, why)

    def _among(self, worktree: Path, said: str) -> FirstBad:
        """The commits among which the first bad one is, when the others cannot be tried."""
        named = [line for line in said.splitlines() if len(line) == 40 and line.isalnum()]
        return FirstBad(tuple(named), "\n".join(self._described(worktree, one) for one in named))

    def _described(self, worktree: Path, commit: str) -> str:
        form = "--format=%h  %ad  %an  %s"
        return self._git(worktree, "show", "--date=short", "--stat", form, commit)

    @staticmethod
    def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
        # Bytecode is taken for current by the second of a file's change; checkouts are quicker.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(  # noqa: S603 - the user's own commands
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    @staticmethod
    def _git(folder: Path, *words: str, may_fail: bool = False) -> str:
        """What git prints. Raises BisectError where it fails and may not."""
        try:
            done = subprocess.run(  # noqa: S603 - git with words of ours
                ["git", "-C", str(folder), *words],  # noqa: S607 - as the user's shell finds it
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            raise BisectError(f"git cannot be run: {error.strerror or error}") from error
        if done.returncode != 0 and not may_fail:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise BisectError(f"git {' '.join(words[:2])} failed: {last}")
        return done.stdout.strip()

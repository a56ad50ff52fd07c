"""The example sentences of docs/invariants.md: bugs that are planted, run and reported anew.

Most bugs are specimens of bugs/. For invariants that another one names first on a pool which shows
its inside, a bug is planted here in a pool that shows little. Those of steps are planted in the
plainest engine. DATA has no sentence at pool level.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from poolproof.bugs.catalogue import SPECIMENS
from poolproof.bugs.clean_pool import CleanPool
from poolproof.certification.levels.certified_level import Veiled
from poolproof.contract.commands import Allocate, Cache, Command, Evict, Free, Touch
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import PlanStep, RunStep, Submit
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.profile import Profile
from poolproof.contract.target import POOL_OBSERVERS
from poolproof.contract.violation import Violation
from poolproof.harness.engine_session import EngineSession
from poolproof.harness.pool_session import PoolSession
from poolproof.invariants.progress import MOST_EMPTY_PLANS
from poolproof.reference.native_engine import NativePlainEngine

__all__ = ["sentences"]

HASH = b"\xc7\xaa\x41\xf0" * 4
ALLOCATE, CACHE, FREE = Allocate(1), Cache((0,), (HASH,)), Free((0,))


@dataclass(frozen=True)
class Example:
    """A bug and the commands that show it, in a pool of two blocks."""

    bug: str | type[CleanPool]
    commands: tuple[Command, ...]
    compared: bool = True

    def violation(self) -> Violation:
        """What breaks after the last command."""
        profile = SPECIMENS[self.bug].profile if isinstance(self.bug, str) else Profile()
        session = PoolSession(self._pool(), profile, 2, checked=self.compared)
        found = [session.step_any(command) for command in self.commands]
        violation = found.pop() if self.compared else session.end()
        assert violation is not None, self
        assert not any(found), self
        return violation

    def _pool(self) -> Any:
        if isinstance(self.bug, str):
            return SPECIMENS[self.bug].make(2)
        return Veiled(self.bug(2), frozenset(POOL_OBSERVERS))


@dataclass(frozen=True)
class EngineExample:
    """A bug and the commands that show it, in an engine of two blocks of 4 tokens."""

    bug: type[NativePlainEngine]
    commands: tuple[Command, ...]

    def violation(self) -> Violation:
        """What breaks after the last command."""
        session = EngineSession(self.bug(2), EngineProfile(), 2, 4)
        found = [session.step(command) for command in self.commands]
        violation = found.pop()
        assert violation is not None, self
        assert not any(found), self
        return violation


class ForgetsThatItComputed(NativePlainEngine):
    """Behind the prompt it computes one position more than there are tokens."""

    def plan(self) -> dict[str, Any]:
        plan = super().plan()
        for part in plan["compute"]:
            part["count"] += 1
        return plan


class GivesWhatIsBehindTheEnd(NativePlainEngine):
    """The last token of a request comes twice."""

    def answer(self, tokens: Any, drafts: Any, /) -> list[tuple[int, list[int], bool]]:
        return [(n, due * 2 if end else due, end) for n, due, end in super().answer(tokens, drafts)]


class NeverAdmits(NativePlainEngine):
    """Whoever comes waits for ever."""

    def _admit(self) -> None:
        pass


SUBMIT = Submit(0, TokenChain((5, 6, 7)), 1, 0)


class HandsOutOneOfTheHeld(CleanPool):
    """Somebody else's block, while all counts look right."""

    def allocate(self, n: int) -> list[int]:
        held = [block for block, count in enumerate(self.ref_counts) if count]
        return super().allocate(n)[: n - 1] + held[:1] if held else super().allocate(n)


class KeepsTheLastBlock(CleanPool):
    """An off-by-one in the admission check."""

    def allocate(self, n: int) -> list[int]:
        if n == self.num_free():
            raise MemoryError("no free blocks")
        return super().allocate(n)


class LosesTheLast(CleanPool):
    """Of several blocks the last does not come back."""

    def free(self, block_ids: list[int]) -> None:
        super().free(block_ids[:-1])


EXAMPLES: dict[str, Example | EngineExample] = {
    "I1": Example("A12", (ALLOCATE, CACHE, FREE, Touch((0,)))),
    "I2": Example(HandsOutOneOfTheHeld, (ALLOCATE, ALLOCATE)),
    "I3": Example("D21", (CACHE,)),
    "I4": Example("E10", (Allocate(2), CACHE, Free((1, 0)), ALLOCATE)),
    "OWN": Example("A28", (ALLOCATE, Touch((0,)))),
    "LINK": Example("A5", (ALLOCATE,)),
    "IDX": Example("D4", (ALLOCATE, CACHE, FREE, Allocate(2))),
    "ORD": Example("E1", (Allocate(2), Free((1, 0)))),
    "ADM": Example(KeepsTheLastBlock, (Allocate(2),)),
    "ATOM": Example("E8", (Allocate(3),)),
    "LEAK": Example(LosesTheLast, (Allocate(2), Free((0, 1))), compared=False),
    "EVT": Example("J1", (Allocate(2), Cache((0, 1), (HASH, HASH)), Evict((0,)))),
    "PLAN": EngineExample(ForgetsThatItComputed, (SUBMIT, PlanStep())),
    "OUT": EngineExample(GivesWhatIsBehindTheEnd, (SUBMIT, RunStep(8, 0, 0))),
    "LIVE": EngineExample(NeverAdmits, (SUBMIT, *[RunStep(8, 0, 0)] * MOST_EMPTY_PLANS)),
    "MISUSE": Example("A25", (FREE,)),
    "CRASH": Example("G7", (Touch((0,)),)),
}


def sentences() -> str:
    """A table: the invariant, the commands, what a report says after them."""
    rows = []
    for name, example in EXAMPLES.items():
        violation = example.violation()
        assert violation.invariant == name, (name, violation)
        commands = "; ".join(
            f"{command}, {times} times" if times > 1 else str(command)
            for command, same in groupby(example.commands)
            for times in [len(list(same))]
        )
        rows.append(f"| {name} | `{commands}` | {violation.sentence} |")
    return "\n".join(["| name | commands | sentence |", "|---|---|---|", *rows]) + "\n"

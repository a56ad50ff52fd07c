"""What a certification asks of a level: what it drives, what it searches, and what it says.

Everything here is values and work in the process that holds the target. `certify.py` alone decides
which stages run, and in which order; they are the same for all levels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from poolproof.bugs.specimen import ManagerSpecimen, Specimen
from poolproof.certification.depths import Sequences
from poolproof.certification.description import Description, part_of
from poolproof.certification.options import CertifyOptions
from poolproof.certification.run_kinds import Chunk, RunKind
from poolproof.contract.commands import Command
from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.exploration.shortest import Announce, ShortestResult
from poolproof.harness.extent import Extent
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.targets.target import Make, Target

__all__ = [
    "MOST_BLOCKS_TO_SEARCH",
    "MOST_STATES_OF_SEQUENCES",
    "AnySpecimen",
    "BlockLevel",
    "CertifiedLevel",
    "Lesson",
    "MakeMachine",
    "NumberedRuns",
    "PlantedRuns",
    "Veiled",
    "Wanted",
    "visible",
]

AnySpecimen = Specimen | ManagerSpecimen
SpecimenT = TypeVar("SpecimenT", Specimen, ManagerSpecimen)

MOST_BLOCKS_TO_SEARCH = 5
"""Beyond this the breadth-first search gets nowhere within its budget."""

MOST_STATES_OF_SEQUENCES = 1_000_000
"""All sequences of a stage come to fewer; what has no end is ended by its steps."""

_NEEDS_SIGHT = {"order": "free_order", "events": "take_events"}


class NumberedRuns(Protocol):
    """A numbered family of runs of one kind."""

    def setup(self, number: int) -> Trace:
        """The header of the trace that run number `number` writes if it fails."""
        ...

    def run(self, number: int, announce: Any = None) -> Any:
        """Drive run number `number`; `announce` gets each command before it is applied."""
        ...


MakeMachine = Callable[[Any, MachineLog], RuleBasedStateMachine]
"""(campaign, log) -> one of the state machines of `stateful_tests/`."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One method: how it is called, what it does, and the invariants that it serves."""

    call: str
    what: str
    serves: tuple[str, ...]

    @property
    def method(self) -> str:
        """The method's bare name."""
        return self.call.partition("(")[0]

    @property
    def sentence(self) -> str:
        """What to do next, in one sentence."""
        return f"write {self.call}: {self.what} (serves {', '.join(self.serves)})"


@dataclass(frozen=True, slots=True)
class PlantedRuns:
    """A planted bug, in words, and the runs that have to catch it."""

    bug: str
    runs: NumberedRuns

    @classmethod
    def of(cls, specimen: AnySpecimen, runs: NumberedRuns) -> PlantedRuns:
        """Those of a specimen, by its id and title."""
        return cls(f"{specimen.id} {specimen.title}", runs)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a search for a shorter trace looks for: this length at most, and that failure.

    `max_applied` counts commands, those on the way to a state included.
    """

    max_commands: int
    max_states: int
    max_applied: float
    is_wanted: Callable[[Violation, tuple[Command, ...]], bool]


class CertifiedLevel(ABC):
    """One level of an allocator, as a certification sees it."""

    level: ClassVar[Level]
    lessons: ClassVar[tuple[Lesson, ...]]
    """In the order in which the methods are best written."""
    share_of_states: ClassVar[int] = 1
    """The states of a search for a shorter trace are divided by this: what a state costs."""
    search_grammar: ClassVar[str]
    """The bounds of that search, as its finding states them."""
    is_searched_in_campaigns: ClassVar[bool] = True
    """Whether a campaign, which meets the same bug again and again, can afford that search."""

    @abstractmethod
    def kinds(self, about: Description) -> list[RunKind]:
        """The kinds of runs that drive this level of the target, in their order."""

    @abstractmethod
    def campaign(self, target: Target, chunk: Chunk) -> NumberedRuns:
        """The family of runs that a chunk belongs to."""

    @abstractmethod
    def machine(self, kind: RunKind) -> MakeMachine:
        """The state machine for a kind of runs."""

    @abstractmethod
    def make(self, target: Target, trace: Trace) -> Make:
        """The factory of the instances that the trace was recorded on."""

    @abstractmethod
    def required_facts(self, about: Description, kind: RunKind) -> list[str]:
        """The situations without which runs of this kind have shown nothing."""

    @abstractmethod
    def planted(self, about: Description, kinds: Sequence[RunKind]) -> Iterable[PlantedRuns]:
        """The planted bugs that runs of these kinds have to catch, behind the target's veil."""

    @abstractmethod
    def why_not_searched(self, trace: Trace) -> str | None:
        """Why no shorter trace is searched for; None where one is."""

    @abstractmethod
    def shortest(self, trace: Trace, make: Make, wanted: Wanted) -> ShortestResult:
        """Search breadth first for a shorter trace, on as many blocks as the trace has."""

    @abstractmethod
    def open_points(self, about: Description, options: CertifyOptions) -> Sequence[str]:
        """What a pass at this level leaves open, in whole sentences."""

    def left_out(self, about: Description, options: CertifyOptions) -> list[tuple[str, str]]:
        """What a certification of this level could have done and did not, each with the reason."""
        del about, options
        return []

    @abstractmethod
    def why_no_attention(self, about: Description) -> str | None:
        """Why no attention can be served from such a target; None where it can."""

    def method_of(self, verb: str) -> str:
        """The method that a command calls."""
        return verb

    def lesson_for(self, methods: set[str]) -> Lesson:
        """The first lesson that names one of these methods; one of no lesson comes last."""
        for lesson in self.lessons:
            if lesson.method in methods:
                return lesson
        return Lesson(f"{min(methods)}()", "it raises NotImplementedError", ("CRASH",))


class BlockLevel(CertifiedLevel):
    """A level whose commands name blocks: a queue, an index or a pool."""

    search_grammar = "with counts up to 3 and lists up to 2"

    def make(self, target: Target, trace: Trace) -> Make:
        """Those of the part; of a pool with token chains where the trace has blocks of tokens."""
        part = part_of(target, self.level)
        if int(trace.options.get("block_size", 1)) > 1:
            assert part.make_chained is not None
            return part.make_chained
        return part.make

    def why_not_searched(self, trace: Trace) -> str | None:
        """Token chains, or too many blocks."""
        usable = trace.num_blocks - (trace.profile.null_block is not None)
        if trace.options.get("block_size", 1) != 1:
            return "no breadth-first search on token chains"
        if usable > MOST_BLOCKS_TO_SEARCH:
            return f"too many blocks ({usable}) to search"
        return None

    @abstractmethod
    def try_sequences(
        self,
        make: Make,
        profile: Profile,
        num_blocks: int,
        bounds: Sequences,
        announce: Announce,
    ) -> ShortestResult:
        """Try all sequences of commands, the shortest first, up to the first that fails."""

    def blocks_of_sequences(self, profile: Profile, usable: int) -> int:
        """How many blocks there are, so that so many can be used."""
        del profile
        return usable

    def sequence_words(self, bounds: Sequences) -> str:
        """The bounds of all sequences, as a certificate states them."""
        return f"counts up to {bounds.max_count}, lists up to {bounds.max_list}"

    def sequence_extent(self, bounds: Sequences) -> Extent:
        """The sizes that all sequences reach, their blocks and commands aside."""
        tried = Extent()
        tried.note("blocks in one allocation", 0, bounds.max_count)
        tried.note("entries in one list", 1, bounds.max_list)
        return tried


class Veiled:
    """An allocator of which only some observers can be seen."""

    def __init__(self, instance: Any, hidden: frozenset[str]) -> None:
        self._instance = instance
        self._hidden = hidden

    def __getattr__(self, name: str) -> Any:
        if name in self._hidden:
            raise AttributeError(name)
        return getattr(self._instance, name)

    @classmethod
    def maker(cls, make: Callable[[int, bool], Any], hidden: frozenset[str]) -> Make:
        """The factory of instances behind the veil."""
        return lambda num_blocks, enable_caching: cls(make(num_blocks, enable_caching), hidden)


def visible(specimens: Iterable[SpecimenT], hidden: frozenset[str]) -> list[SpecimenT]:
    """Those that can be seen although these observers are missing."""
    return [s for s in specimens if _NEEDS_SIGHT.get(s.severity.value) not in hidden]

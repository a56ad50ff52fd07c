"""A small engine over a manager: commands go to it, steps go through the kernels under test.

The manager's answers are followed, never judged: which tokens are cached, which blocks a table
names, what to copy. If any of it is wrong, so is an output (`forward.py`). A command that is
not legal in the engine's state is left out, so that a recorded trace can be replayed on a manager
that answers differently; `commands` are those that were given.

Groups of full attention and of sliding windows are driven. A paged kernel cannot express chunked
attention and recurrent states, and transfers from elsewhere (`load`) are left out. The certifying
code decides which managers there are: kernels know no allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any

from poolproof.contract.commands import Command, Reset
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Abort,
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Fork,
    LookupPrefix,
    Preempt,
    Resume,
    Schedule,
    Step,
    SwapIn,
    SwapOut,
    Truncate,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import MANAGER_METHODS, manager_capabilities_of
from poolproof.contract.trace import Trace
from poolproof.kernels.batch import PagedBatch
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.serving.forward import AllocatorBrokeError, ForwardPass, Part
from poolproof.kernels.serving.memory import CacheMemory
from poolproof.kernels.serving.model import TinyModel
from poolproof.kernels.target import KernelTarget

__all__ = [
    "FollowedManager",
    "LiveSequence",
    "ManagerEngine",
    "Pairs",
    "ServedManager",
    "extended",
    "why_not_served",
    "windows_of",
]


def why_not_served(profile: ManagerProfile) -> str | None:
    """Why managers of this profile cannot be driven here; None where they can."""
    kinds = {group.kind for group in profile.groups} - {"full", "sliding"}
    if kinds:
        return f"{' and '.join(sorted(kinds))} groups are nothing that a paged kernel reads"
    return None


def windows_of(profile: ManagerProfile) -> tuple[int | None, ...]:
    """The sliding window of each group, None for full attention."""
    return tuple(group.window if group.is_sliding else None for group in profile.groups)


@dataclass(slots=True)
class LiveSequence:
    """What the caller must know about a sequence that a manager serves.

    The contract says what a caller may ask for (docs/managers.md); the rules here are those of a
    caller that asks for nothing else. They need the tables that the manager shows, and no model of
    it. `computed` tokens have their keys in the caches, `scheduled` ones get them in the next
    step. `place` is "device", "host" or "nowhere" (preempted). Sequences that were forked from one
    another are one `family`, and are swapped together. `worker_tables` are what the manager
    reported, where it reports changes alone. `told` is the token that a step has sampled, where the
    profile says that it is told then; the next growth begins with it.
    """

    seq_id: int
    chain: TokenChain
    family: int
    computed: int = 0
    scheduled: int = 0
    drafts: tuple[int, ...] = ()
    told: int | None = None
    drafts_computed: bool = False
    place: str = "device"
    worker_tables: list[list[int]] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens without drafts."""
        return len(self.chain.tokens)

    @property
    def is_running(self) -> bool:
        """Whether it holds blocks of the device."""
        return self.place == "device"

    @property
    def is_settled(self) -> bool:
        """Whether nothing of it waits for a step or for the end of its drafts."""
        return self.is_running and not self.scheduled and not self.drafts

    @property
    def is_complete(self) -> bool:
        """Whether it is settled and computed to its last token."""
        return self.is_settled and self.computed == self.num_tokens

    @property
    def can_grow(self) -> bool:
        """Whether further tokens may be appended."""
        whole = self.computed + self.scheduled == self.num_tokens
        return self.is_running and whole and not self.drafts

    @property
    def num_unscheduled(self) -> int:
        """Tokens of the prompt that no step has been asked to compute."""
        return self.num_tokens - self.computed - self.scheduled

    def extend(self, tokens: Sequence[int]) -> None:
        """Append further tokens."""
        self.chain = extended(self.chain, tokens)

    def cut(self, num_tokens: int) -> None:
        """Keep only the first tokens."""
        old = self.chain
        self.chain = TokenChain(old.tokens[:num_tokens], old.lora, old.salt, old.images)
        self.computed = min(self.computed, num_tokens)
        self.told = None

    def lose_blocks(self) -> None:
        """It was preempted: nothing of it is computed any more."""
        self.place, self.computed, self.scheduled = "nowhere", 0, 0
        self.drafts, self.drafts_computed, self.worker_tables = (), False, []
        self.told = None


def extended(chain: TokenChain, tokens: Sequence[int]) -> TokenChain:
    """The chain with further tokens behind it."""
    return TokenChain((*chain.tokens, *tokens), chain.lora, chain.salt, chain.images)


Pairs = list[tuple[int, int]]


class FollowedManager:
    """A manager over `num_blocks` blocks; `commands` are those that it was given.

    Its answers become plain values. Anything that is not an answer (another type, a block that does
    not exist, an exception) is raised as AllocatorBrokeError; answers are not judged.
    """

    def __init__(self, manager: Any, num_blocks: int) -> None:
        self.manager = manager
        self.can = manager_capabilities_of(manager)
        self.commands: list[Command] = []
        self._num_blocks = num_blocks

    def call(self, command: Command, *arguments: Any, **named: Any) -> Any:
        self.commands.append(command)
        method = getattr(self.manager, MANAGER_METHODS[command.verb])
        return self.asked(method, str(command), *arguments, **named)

    def asked(self, method: Callable[..., Any], words: str, *arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except Exception as error:
            raise AllocatorBrokeError(f"{words} raised {error!r}") from error

    def count(self, answer: Any, command: Command, most: int) -> int:
        try:
            cached = index(answer)
        except TypeError as error:
            raise AllocatorBrokeError(f"{command} answered {answer!r:.200}") from error
        if not 0 <= cached <= most:
            raise AllocatorBrokeError(f"{command} reports {cached} of {most} tokens as cached")
        return cached

    def blocks(self, answer: Any, words: str) -> list[int]:
        try:
            blocks = [index(block) for block in answer]
        except TypeError as error:
            raise AllocatorBrokeError(f"{words} answered {answer!r:.200}") from error
        if any(not 0 <= block < self._num_blocks for block in blocks):
            raise AllocatorBrokeError(f"{words} names no blocks: {blocks}")
        return blocks

    def pairs(
        self, answer: Any, command: Command, sources: int | None = None, into: int | None = None
    ) -> Pairs:
        """The copies that an answer orders; sources and destinations below these numbers."""
        most = self._num_blocks
        try:
            pairs = [(index(source), index(destination)) for source, destination in answer or ()]
        except (TypeError, ValueError) as error:
            raise AllocatorBrokeError(f"{command} answered {answer!r:.200}") from error
        limits = (most if sources is None else sources, most if into is None else into)
        for pair in pairs:
            if any(not 0 <= block < limit for block, limit in zip(pair, limits, strict=True)):
                raise AllocatorBrokeError(f"{command} orders the copies {pairs}")
        return pairs


class ManagerEngine(FollowedManager):
    """A manager over `num_blocks` blocks, and the caches of a model with its groups."""

    def __init__(
        self,
        target: KernelTarget,
        manager: Any,
        profile: ManagerProfile,
        num_blocks: int,
        block_size: int,
        model: TinyModel,
        watch: Callable[[PagedBatch], None] | None = None,
    ) -> None:
        assert why_not_served(profile) is None
        super().__init__(manager, num_blocks)
        self.profile, self.block_size = profile, block_size
        self.sequences: dict[int, LiveSequence] = {}
        self.shared = 0
        self.is_ring = profile.window_blocks == "reused" and any(windows_of(profile))
        self.block_sizes = [group.block_size or block_size for group in profile.groups]
        self.memory = CacheMemory(
            target, model, num_blocks, max(self.block_sizes), profile.host_blocks
        )
        self.forward = ForwardPass(
            target, model, self.memory, self.block_sizes, rings=self.is_ring, watch=watch
        )
        self._tells = profile.sampled == "with-step"
        self._seen: set[int] = set()
        self._apply: dict[type[Command], Callable[[Any], bool]] = {
            Abort: self._end,
            Accept: self._accept,
            Admit: self._admit,
            AppendTokens: self._append,
            Draft: self._draft,
            Finish: self._end,
            Fork: self._fork,
            LookupPrefix: self._lookup,
            Preempt: self._preempt,
            Reset: self._reset,
            Resume: self._resume,
            Schedule: self._schedule,
            Step: self._step,
            SwapIn: self._swap_in,
            SwapOut: self._swap_out,
            Truncate: self._truncate,
        }

    def apply(self, command: Command) -> bool:
        """Give a command; False if it is not legal now, or was refused.

        Raises WrongOutputError and AllocatorBrokeError.
        """
        rule = self._apply.get(type(command))
        return rule is not None and command.verb in self.can.verbs and rule(command)

    def table(self, sequence: LiveSequence, group: int) -> list[int]:
        """The table that the manager shows. Raises AllocatorBrokeError for anything else."""
        arguments = (sequence.seq_id,) if len(self.block_sizes) == 1 else (sequence.seq_id, group)
        shown = self.asked(self.manager.block_table, "block_table", *arguments)
        return self.blocks(shown, f"block_table{arguments}")

    def may_lose_blocks(self, sequence: LiveSequence) -> bool:
        """Whether it may be ended or preempted: others may have hit what it is going to write."""
        return not (self.profile.publishes == "scheduled" and sequence.scheduled)

    def is_quiet(self, sequence: LiveSequence) -> bool:
        """Whether it is settled and no other sequence is going to write what it has hit."""
        if not sequence.is_settled:
            return False
        busy = any(other.scheduled for other in self.sequences.values())
        return not (busy and self.profile.same_step_hit == "allowed")

    def _admit(self, command: Admit) -> bool:
        if command.seq_id in self._seen or not command.chain.tokens:
            return False
        sequence = LiveSequence(command.seq_id, command.chain, family=command.seq_id)
        if not self._enter(command, sequence, command.num_tokens):
            return False
        self._seen.add(command.seq_id)
        self.sequences[command.seq_id] = sequence
        return True

    def _resume(self, command: Resume) -> bool:
        sequence = self.sequences.get(command.seq_id)
        if sequence is None or sequence.place != "nowhere":
            return False
        return self._enter(command, sequence, command.num_tokens)

    def _enter(self, command: Command, sequence: LiveSequence, num_tokens: int) -> bool:
        chain = sequence.chain
        named: dict[str, Any] = {"extra_keys": chain.extra_keys()}
        chunked = "schedule" in self.can.verbs
        if chunked:
            named["num_tokens"] = num_tokens or None
        answer = self.call(command, sequence.seq_id, list(chain.tokens), **named)
        if isinstance(answer, str):
            return False
        cached = self._found(answer, command, sequence.num_tokens)
        self.shared += cached > 0
        left = sequence.num_tokens - cached
        sequence.computed, sequence.place = cached, "device"
        sequence.scheduled = min(num_tokens, left) if num_tokens and chunked else left
        return True

    def _found(self, answer: Any, command: Command, most: int) -> int:
        """How many tokens are cached, after the copies that an admission may order with them.

        A copy takes the whole block: what lies behind the tokens that it is for is written before
        it is read, or the read is wrong in any case.
        """
        if not isinstance(answer, tuple):
            return self.count(answer, command, most)
        try:
            cached, copies = answer
            pairs = [(source, destination) for source, destination, _ in copies or ()]
        except (TypeError, ValueError) as error:
            raise AllocatorBrokeError(f"{command} answered {answer!r:.200}") from error
        self.memory.copy(self.pairs(pairs, command))
        return self.count(cached, command, most)

    def _append(self, command: AppendTokens) -> bool:
        sequence = self.sequences.get(command.seq_id)
        if sequence is None or not sequence.can_grow or not command.tokens:
            return False
        # Beyond the window a second token would overwrite what the first one reads.
        if self.is_ring and len(command.tokens) > 1:
            return False
        if sequence.told is not None:
            command = replace(command, tokens=(sequence.told, *command.tokens[1:]))
        if not self._grow(command, sequence.seq_id, list(command.tokens)):
            return False
        sequence.extend(command.tokens)
        sequence.scheduled += len(command.tokens)
        sequence.told = None
        return True

    def _schedule(self, command: Schedule) -> bool:
        sequence = self.sequences.get(command.seq_id)
        if sequence is None or not sequence.is_running or sequence.drafts:
            return False
        if not 0 < command.num_tokens <= sequence.num_unscheduled:
            return False
        if not self._grow(command, sequence.seq_id, command.num_tokens):
            return False
        sequence.scheduled += command.num_tokens
        return True

    def _draft(self, command: Draft) -> bool:
        sequence = self.sequences.get(command.seq_id)
        if sequence is None or not sequence.can_grow or not sequence.scheduled or self.is_ring:
            return False
        if not command.tokens or not self._grow(command, sequence.seq_id, list(command.tokens)):
            return False
        sequence.drafts, sequence.drafts_computed = command.tokens, False
        return True

    def _grow(self, command: Command, *arguments: Any) -> bool:
        answer = self.call(command, *arguments)
        if isinstance(answer, str):
            return False
        self.memory.copy(self.pairs(answer, command))
        return True

    def _accept(self, command: Accept) -> bool:
        sequence = self.sequences.get(command.seq_id)
        if sequence is None or not sequence.drafts_computed:
            return False
        kept = sequence.drafts[: command.num_tokens]
        sampled = self._sampled(sequence, len(kept)) if self._tells else None
        told = {"sampled": sampled} if self._tells else {}
        self.call(command, sequence.seq_id, len(kept), **told)
        sequence.told = sampled
        sequence.extend(kept)
        sequence.computed += len(kept)
        sequence.drafts, sequence.drafts_computed = (), False
        return True

    def _step(self, command: Step) -> bool:
        if any(sequence.drafts_computed for sequence in self.sequences.values()):
            return False
        busy = [sequence for sequence in self.sequences.values() if sequence.scheduled]
        parts = [self._part(sequence) for sequence in busy]
        sampled = {
            sequence.seq_id: self._sampled(sequence)
            for sequence in busy
            if not sequence.drafts and not sequence.num_unscheduled
        }
        told = {"sampled": list(sampled.items())} if self._tells else {}
        self.call(command, [(part.request, part.count) for part in parts], **told)
        if parts:
            self.forward.run(parts)
        for sequence in busy:
            sequence.computed += sequence.scheduled
            sequence.scheduled = 0
            sequence.drafts_computed = bool(sequence.drafts)
            sequence.told = sampled.get(sequence.seq_id) if self._tells else None
        return True

    @staticmethod
    def _sampled(sequence: LiveSequence, num_drafts: int = 0) -> int:
        """The token behind a sequence, of whose drafts so many are accepted: 0 or 1."""
        return (sequence.seq_id + sequence.num_tokens + num_drafts) % 2

    def _part(self, sequence: LiveSequence) -> Part:
        """The part of a sequence that the next pass computes, through the worker's tables."""
        chain = extended(sequence.chain, sequence.drafts)
        count = sequence.scheduled + len(sequence.drafts)
        tables = [self._worker_table(sequence, group) for group in range(len(self.block_sizes))]
        for table, size in zip(tables, self.block_sizes, strict=True):
            needed = -(-(sequence.computed + count) // size)
            if len(table) < needed:
                raise AllocatorBrokeError(
                    f"sequence {sequence.seq_id} has {len(table)} blocks where it needs {needed}"
                )
        return Part(sequence.seq_id, chain, sequence.computed, count, tables)

    def _worker_table(self, sequence: LiveSequence, group: int) -> list[int]:
        """The whole table, or what the worker builds from the reported changes (vllm#42273)."""
        if not self.can.sees("take_table_update"):
            return self.table(sequence, group)
        tables = sequence.worker_tables or [[] for _ in self.block_sizes]
        words = f"take_table_update({sequence.seq_id}, {group})"
        update = self.asked(self.manager.take_table_update, words, sequence.seq_id, group)
        try:
            replaced, blocks = update
        except (TypeError, ValueError) as error:
            raise AllocatorBrokeError(f"{words} answered {update!r:.200}") from error
        new = self.blocks(blocks, words)
        tables[group] = new if replaced else [*tables[group], *new]
        sequence.worker_tables = tables
        return tables[group]

    def _fork(self, command: Fork) -> bool:
        parent = self.sequences.get(command.seq_id)
        if parent is None or not parent.is_complete or not self.is_quiet(parent):
            return False
        if command.child_id in self._seen:
            return False
        if not self._grow(command, parent.seq_id, command.child_id):
            return False
        child = LiveSequence(command.child_id, parent.chain, parent.family, parent.computed)
        self._seen.add(child.seq_id)
        self.sequences[child.seq_id] = child
        return True

    def _truncate(self, command: Truncate) -> bool:
        sequence = self.sequences.get(command.seq_id)
        if sequence is None or not sequence.is_complete or not self.is_quiet(sequence):
            return False
        if not 0 < command.num_tokens <= sequence.num_tokens or self._is_gone(
            sequence, command.num_tokens
        ):
            return False
        if not self._grow(command, sequence.seq_id, command.num_tokens):
            return False
        sequence.cut(command.num_tokens)
        return True

    def _is_gone(self, sequence: LiveSequence, num_tokens: int) -> bool:
        """Whether a cut sequence would read again what slid out of a window."""
        return any(
            group.first_read(num_tokens) < group.first_read(sequence.computed)
            for group in self.profile.groups
        )

    def _preempt(self, command: Preempt) -> bool:
        sequence = self.sequences.get(command.seq_id)
        if sequence is None or not sequence.is_running or not self.may_lose_blocks(sequence):
            return False
        self.call(command, sequence.seq_id)
        sequence.lose_blocks()
        return True

    def _family(self, command: SwapOut | SwapIn) -> list[LiveSequence]:
        sequence = self.sequences.get(command.seq_id)
        if sequence is None:
            return []
        return [other for other in self.sequences.values() if other.family == sequence.family]

    def _swap_out(self, command: SwapOut) -> bool:
        family = self._family(command)
        if not family or not all(map(self.is_quiet, family)):
            return False
        return self._swap(command, family, self.memory.swap_out, "host")

    def _swap_in(self, command: SwapIn) -> bool:
        family = self._family(command)
        if not family or self.sequences[command.seq_id].place != "host":
            return False
        return self._swap(command, family, self.memory.swap_in, "device")

    def _swap(
        self,
        command: Command,
        family: list[LiveSequence],
        move: Callable[[Pairs], None],
        place: str,
    ) -> bool:
        answer = self.call(command, getattr(command, "seq_id", None))
        if isinstance(answer, str):
            return False
        to_host = place == "host"
        device, host = self.memory.num_blocks, self.memory.num_host_blocks
        limits = (device, host) if to_host else (host, device)
        move(self.pairs(answer, command, *limits))
        for sequence in family:
            sequence.place, sequence.worker_tables = place, []
        return True

    def _end(self, command: Finish | Abort) -> bool:
        sequence = self.sequences.get(command.seq_id)
        if sequence is None or (sequence.is_running and not self.may_lose_blocks(sequence)):
            return False
        if isinstance(command, Finish) and not sequence.is_running:
            return False
        self.call(command, command.seq_id)
        del self.sequences[command.seq_id]
        return True

    def _lookup(self, command: LookupPrefix) -> bool:
        chain = command.chain
        self.call(command, list(chain.tokens), extra_keys=chain.extra_keys())
        return True

    def _reset(self, command: Reset) -> bool:
        self.call(command)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedManager:
    """A manager that a kernel is certified with: how it is built, and runs that were recorded.

    `make(num_blocks, block_size)` builds one; `block_size` None: of whatever size is
    asked for. `record(seed, block_size)` is a run of it that a campaign of the allocator's harness
    made.
    """

    name: str
    profile: ManagerProfile
    make: Callable[[int, int], Any]
    record: Callable[[int, int], Trace]
    block_size: int | None = None

    def fits(self, declared: Declaration) -> bool:
        """Whether a kernel with this declaration can serve it."""
        profile = self.profile
        has_window = any(windows_of(profile))
        sizes = {group.block_size for group in profile.groups} - {0}
        return (
            why_not_served(profile) is None
            and not sizes
            and (self.block_size is None or self.block_size in declared.block_sizes)
            and (not has_window or "sliding_window" in declared.features)
        )

    def engine(
        self,
        target: KernelTarget,
        num_blocks: int,
        block_size: int,
        model: TinyModel,
        watch: Callable[[PagedBatch], None] | None = None,
    ) -> ManagerEngine:
        """A fresh manager of so many blocks under an engine."""
        manager = self.make(num_blocks, block_size)
        return ManagerEngine(
            target, manager, self.profile, num_blocks, block_size, model, watch=watch
        )

"""The commands of the manager level: what happens to sequences of tokens, in steps.

Between two `Step`s an engine admits and grows sequences; a `Step` is the forward pass, which
computes exactly what was scheduled since the last one. Sequences are named by small numbers that
the workload gives out and never uses again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain

__all__ = [
    "Abort",
    "Accept",
    "Admit",
    "AppendTokens",
    "Draft",
    "Finish",
    "Fork",
    "Load",
    "Loaded",
    "LookupPrefix",
    "ManagerCommand",
    "Preempt",
    "Resume",
    "Schedule",
    "Step",
    "SwapIn",
    "SwapOut",
    "Truncate",
]


@dataclass(frozen=True, slots=True)
class ManagerCommand(Command):
    """Base of the commands that concern sequences."""


@dataclass(frozen=True, slots=True)
class Admit(ManagerCommand):
    """A new sequence; of its tokens that are not cached `num_tokens` are scheduled, 0: all."""

    verb: ClassVar[str] = "admit"
    seq_id: int
    chain: TokenChain
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Resume(ManagerCommand):
    """A preempted sequence is admitted again, with all the tokens that it had."""

    verb: ClassVar[str] = "resume"
    seq_id: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class AppendTokens(ManagerCommand):
    """Tokens were sampled (or given); they are scheduled, as all that is not computed yet."""

    verb: ClassVar[str] = "append_tokens"
    seq_id: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Schedule(ManagerCommand):
    """The next `num_tokens` tokens of a partly computed prompt are scheduled (chunked prefill)."""

    verb: ClassVar[str] = "schedule"
    seq_id: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Draft(ManagerCommand):
    """Speculative tokens that the next step computes and `Accept` keeps or drops."""

    verb: ClassVar[str] = "draft"
    seq_id: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Accept(ManagerCommand):
    """The first `num_tokens` drafts have become tokens of the sequence, the rest is void."""

    verb: ClassVar[str] = "accept"
    seq_id: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Step(ManagerCommand):
    """The forward pass: everything scheduled is written, then read."""

    verb: ClassVar[str] = "step"


@dataclass(frozen=True, slots=True)
class Fork(ManagerCommand):
    """A new sequence with the tokens, and so far the blocks, of another (beam search, n > 1)."""

    verb: ClassVar[str] = "fork"
    seq_id: int
    child_id: int


@dataclass(frozen=True, slots=True)
class Truncate(ManagerCommand):
    """The sequence keeps its first `num_tokens` tokens; others may be appended in their place."""

    verb: ClassVar[str] = "truncate"
    seq_id: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Preempt(ManagerCommand):
    """The blocks of a sequence go back; it may be resumed later."""

    verb: ClassVar[str] = "preempt"
    seq_id: int


@dataclass(frozen=True, slots=True)
class SwapOut(ManagerCommand):
    """A sequence moves to host memory."""

    verb: ClassVar[str] = "swap_out"
    seq_id: int


@dataclass(frozen=True, slots=True)
class SwapIn(ManagerCommand):
    """A swapped-out sequence comes back."""

    verb: ClassVar[str] = "swap_in"
    seq_id: int


@dataclass(frozen=True, slots=True)
class Finish(ManagerCommand):
    """A sequence has ended by itself."""

    verb: ClassVar[str] = "finish"
    seq_id: int


@dataclass(frozen=True, slots=True)
class Abort(ManagerCommand):
    """A sequence is ended from outside, in whatever state it is."""

    verb: ClassVar[str] = "abort"
    seq_id: int


@dataclass(frozen=True, slots=True)
class LookupPrefix(ManagerCommand):
    """How many tokens of the chain are cached; nothing is taken."""

    verb: ClassVar[str] = "lookup_prefix"
    chain: TokenChain


@dataclass(frozen=True, slots=True)
class Load(ManagerCommand):
    """A new sequence whose next `num_tokens` tokens are written from elsewhere, later."""

    verb: ClassVar[str] = "load"
    seq_id: int
    chain: TokenChain
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Loaded(ManagerCommand):
    """The transfer of a `Load` is over, also where the sequence was ended meanwhile."""

    verb: ClassVar[str] = "loaded"
    seq_id: int

"""Managers of sequences, layout by layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from poolproof.bugs.catalogue import manager_canaries
from poolproof.certification.broken_managers import BROKEN_MANAGERS
from poolproof.certification.description import Description, LayoutDescription
from poolproof.certification.levels.certified_level import (
    CertifiedLevel,
    Lesson,
    MakeMachine,
    NumberedRuns,
    PlantedRuns,
    Veiled,
    Wanted,
    visible,
)
from poolproof.certification.options import CertifyOptions
from poolproof.certification.run_kinds import Chunk, RunKind
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import MANAGER_METHODS, MANAGER_OBSERVERS
from poolproof.contract.target import Capabilities
from poolproof.contract.trace import Trace
from poolproof.exploration.shortest import ShortestResult, shortest_manager_failure
from poolproof.harness.block_sizes import ManagerBlockSizesCampaign
from poolproof.harness.manager_driver import ManagerCampaign, ManagerProductionCampaign
from poolproof.harness.manager_facts import required_manager_facts
from poolproof.harness.manager_production import ManagerSizes, required_script_facts
from poolproof.harness.weak_hashes import WEAK_HASHES
from poolproof.reference.native_manager import NativeSequenceManager
from poolproof.stateful_tests.manager_machine import ManagerMachine
from poolproof.targets.target import Make, Target

__all__ = ["CertifiedManager"]

_BLOCK_SIZE = 4
"""Tokens in a block of the broken specification, which takes any size."""

_UNSEEN = {
    "num_free": "the target shows no num_free(): leaks and wrong counts (LEAK, OWN) show only as "
    "refusals of what should fit",
    "free_order": "the target shows no free_order(): ORD and I1 are inferred from the blocks that "
    "tables name",
    "ref_count": "the target shows no ref_count(): OWN is inferred from tables",
    "is_cached": "the target shows no is_cached(): IDX and I4 are checked through hits alone",
}
_ALWAYS = (
    "whether the engine calls its manager as the contract says, and what kernels do with tables",
    "misuse: only legal calls were made",
)


class CertifiedManager(CertifiedLevel):
    """A manager of sequences; each of its layouts has runs of its own."""

    level = Level.MANAGER
    share_of_states = 10
    is_searched_in_campaigns = False
    search_grammar = "with two sequences at once and the prompts of the exploration"
    lessons = (
        Lesson(
            "admit(seq_id, tokens, ...)",
            "take blocks for the tokens and answer how many of them were cached; where they do not "
            'fit now answer "later", where they never will "never", and change nothing',
            ("ADM", "ATOM", "I2"),
        ),
        Lesson(
            "block_table(seq_id)", "the blocks of a sequence, in the order of its tokens", ("I2",)
        ),
        Lesson(
            "finish(seq_id)",
            "its blocks go back, the last first; an unknown sequence is ignored",
            ("I1", "LEAK", "ORD"),
        ),
        Lesson(
            "step(batch)",
            "the scheduled tokens are computed now: full blocks of them can be found from here on",
            ("I3", "DATA", "I4"),
        ),
        Lesson(
            "append(seq_id, tokens)",
            "slots for further tokens; a shared block is copied before it is written",
            ("DATA", "ADM", "ATOM"),
        ),
        Lesson(
            "abort(seq_id)", "the same as finish, in whatever state the sequence is", ("LEAK", "I1")
        ),
        Lesson(
            "preempt(seq_id)", "the blocks go back; admit() brings the sequence back", ("I1", "I4")
        ),
        Lesson(
            "lookup_prefix(tokens, ...)",
            "how many tokens are cached; nothing changes",
            ("I4", "ATOM"),
        ),
        Lesson(
            "schedule(seq_id, num_tokens)", "slots for the next part of a prompt", ("ADM", "I3")
        ),
        Lesson("fork(seq_id, child_id)", "the child shares what is computed", ("OWN", "DATA")),
        Lesson(
            "truncate(seq_id, num_tokens)", "the tail goes, and the keys over it", ("I3", "IDX")
        ),
        Lesson("draft(seq_id, tokens)", "slots for speculative tokens", ("I3", "ADM")),
        Lesson("accept(seq_id, num_tokens)", "the first drafts are tokens now", ("I3", "DATA")),
        Lesson("load(seq_id, tokens, ...)", "like admit(); a transfer writes the tokens", ("I3",)),
        Lesson(
            "loaded(seq_id)", "the transfer is over, also of a sequence that ended", ("I3", "LEAK")
        ),
        Lesson("swap_out(seq_id)", "the family moves to host blocks", ("OWN", "DATA")),
        Lesson("swap_in(seq_id)", "the family comes back", ("OWN", "DATA")),
        Lesson(
            "reset()", "every key goes and True, or False while a block is held", ("ATOM", "IDX")
        ),
        Lesson("num_free()", "how many blocks nobody holds", ("OWN", "LEAK")),
        Lesson("free_order()", "the free blocks, head first", ("I1", "ORD")),
        Lesson("ref_count(block_id)", "how many sequences hold the block", ("OWN",)),
        Lesson("is_cached(block_id)", "whether the block can be found", ("IDX", "I4")),
    )

    def kinds(self, about: Description) -> list[RunKind]:
        """One kind for each layout that is run."""
        if about.level is not self.level:
            return []
        return [layout.kind for layout in about.layouts if not layout.why_not]

    def campaign(self, target: Target, chunk: Chunk) -> NumberedRuns:
        """Runs of one layout: as it is, with weak hashes, other blocks or production sizes."""
        kind = chunk.kind
        layout = target.layout(kind.name_of_layout)
        assert layout.make is not None
        profile = chunk.profile or layout.profile
        assert isinstance(profile, ManagerProfile)
        options: dict[str, Any] = {"layout": layout.name}
        if kind.hash_bits:
            options[WEAK_HASHES] = kind.hash_bits
            if "collisions" in profile.assumed:
                # Who never said that hits are compared is not called wrong for trusting hashes.
                profile = replace(profile, collisions="trusted")
        if kind.block_sizes:
            return ManagerBlockSizesCampaign(
                target.name, layout.make_with, profile, kind.block_sizes, chunk.seed, options
            )
        about = (target.name, layout.make, profile, layout.block_size, chunk.seed, options)
        if isinstance(kind.production, ManagerSizes):
            return ManagerProductionCampaign(*about, sizes=kind.production)
        return ManagerCampaign(*about)

    def machine(self, kind: RunKind) -> MakeMachine:
        """The managers'."""
        del kind
        return ManagerMachine

    def make(self, target: Target, trace: Trace) -> Make:
        """Those of the trace's layout, with blocks of its size."""
        layout = target.layout(str(trace.options["layout"]))
        return layout.make_with(trace.options["block_size"])

    def required_facts(self, about: Description, kind: RunKind) -> list[str]:
        """Those of the manager grammar, or of the scripts at production sizes."""
        layout = about.layout_of_kind(kind)
        # One that could not be looked at fails when it is driven.
        if layout is None or layout.can is None:
            return []
        if isinstance(kind.production, ManagerSizes):
            return required_script_facts(layout.manager_profile, layout.can, kind.production)
        return required_manager_facts(layout.manager_profile, layout.can)

    def planted(self, about: Description, kinds: Sequence[RunKind]) -> Iterable[PlantedRuns]:
        """Each bug once, in the first layout under whose profile it is one."""
        in_layouts: dict[str, PlantedRuns] = {}
        if about.level is not self.level:
            return ()
        for layout in about.layouts:
            if layout.kind in kinds and layout.can is not None:
                specimens = list(_specimens_in(layout, layout.can))
                for planted in specimens or _broken_in(layout, layout.can):
                    in_layouts.setdefault(planted.bug, planted)
        return in_layouts.values()

    def why_not_searched(self, trace: Trace) -> str | None:
        """A trace of any size is searched from: what grows is the prompts, not the blocks."""
        del trace
        return None

    def shortest(self, trace: Trace, make: Make, wanted: Wanted) -> ShortestResult:
        """Over the prompts of the exploration; over their other keys where the trace has such."""
        assert isinstance(trace.profile, ManagerProfile)
        return shortest_manager_failure(
            make,
            trace.profile,
            trace.num_blocks,
            int(trace.options["block_size"]),
            enable_caching=trace.enable_caching,
            max_commands=wanted.max_commands,
            max_states=wanted.max_states,
            max_applied=wanted.max_applied,
            identities=_has_extra_keys(trace),
            is_wanted=wanted.is_wanted,
        )

    def open_points(self, about: Description, options: CertifyOptions) -> Sequence[str]:
        """What no manager is asked, what this one does not show, what it does not promise."""
        del options
        can = about.can_at(self.level)
        return (
            *_ALWAYS,
            *(sentence for name, sentence in _UNSEEN.items() if not can.sees(name)),
            *_verbs(can),
            *_rows(about),
        )

    def left_out(self, about: Description, options: CertifyOptions) -> list[tuple[str, str]]:
        """Layouts that are not run, or were not asked for."""
        left_out = []
        for layout in about.layouts:
            if layout.why_not:
                left_out.append((f"layout {layout.name}", layout.why_not))
            elif options.layouts and layout.name not in options.layouts:
                left_out.append((f"layout {layout.name}", "not asked for (--layout)"))
        return left_out

    def why_no_attention(self, about: Description) -> str | None:
        """Layouts that a paged kernel cannot read are left out one by one."""
        del about
        return None

    def method_of(self, verb: str) -> str:
        """To resume is to admit again."""
        return MANAGER_METHODS.get(verb, verb)


def _has_extra_keys(trace: Trace) -> bool:
    """Whether a trace has prompts that more than their tokens tell apart."""
    chains = [getattr(command, "chain", None) for command in trace.commands]
    return any(chain is not None and chain.extra_keys() is not None for chain in chains)


def _verbs(can: Capabilities) -> Iterator[str]:
    # To resume is to admit again, where the target can preempt.
    lacking = [m for verb, m in MANAGER_METHODS.items() if verb not in (*can.verbs, "resume")]
    if lacking:
        yield f"verbs that the target lacks: {', '.join(lacking)}"


def _rows(about: Description) -> Iterator[str]:
    """Rows by which the profile promises less than could be checked."""
    for layout in about.layouts:
        for reason in _promises_less(layout):
            yield f"layout {layout.name}: {reason}"


def _promises_less(layout: LayoutDescription) -> Iterator[str]:
    profile = layout.manager_profile
    if layout.why_not:
        return
    if profile.admission == "sound":
        yield "admission=sound, so that refusals of what would fit were not judged (ADM)"
    if profile.hits == "sound":
        yield "hits=sound, so that missed hits were not judged (I4)"
    for row in ("eviction", "release_order", "uncached_order", "group_order"):
        if getattr(profile, row) == "unspecified":
            yield f"{row}=unspecified, so that no order was judged (ORD)"
    if profile.publishes == "never":
        yield "publishes=never: there is no prefix cache"


def _specimens_in(layout: LayoutDescription, can: Capabilities) -> Iterator[PlantedRuns]:
    """Specimens that are bugs under the profile of a layout, seen no better than the target."""
    hidden, profile = frozenset(MANAGER_OBSERVERS) - can.observers, layout.manager_profile
    for specimen in visible(manager_canaries(profile, can), hidden):
        make = Veiled.maker(specimen.make_under(profile), hidden)
        runs = ManagerCampaign(specimen.id, make, profile, specimen.block_size)
        yield PlantedRuns.of(specimen, runs)


def _broken_in(layout: LayoutDescription, can: Capabilities) -> Iterator[PlantedRuns]:
    """The specification under the profile of a layout, broken."""
    hidden, profile = frozenset(MANAGER_OBSERVERS) - can.observers, layout.manager_profile
    for what, cls in BROKEN_MANAGERS.items():
        build = partial(_build, cls, profile)
        runs = ManagerCampaign(what, Veiled.maker(build, hidden), profile, _BLOCK_SIZE)
        yield PlantedRuns(f"the specification with {what}", runs)


def _build(
    cls: type[NativeSequenceManager],
    profile: ManagerProfile,
    num_blocks: int,
    enable_caching: bool,
) -> NativeSequenceManager:
    return cls(num_blocks, _BLOCK_SIZE, enable_caching=enable_caching, profile=profile)

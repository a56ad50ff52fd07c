"""Engines: whole schedulers, set-up by set-up, over a worker that is simulated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from poolproof.bugs.engine_catalogue import engine_canaries
from poolproof.certification.broken_engines import BROKEN_ENGINES, NEEDS
from poolproof.certification.description import Description, LayoutDescription
from poolproof.certification.levels.certified_level import (
    CertifiedLevel,
    Lesson,
    MakeMachine,
    NumberedRuns,
    PlantedRuns,
    Veiled,
    Wanted,
)
from poolproof.certification.options import CertifyOptions
from poolproof.certification.run_kinds import Chunk, RunKind
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.engine_target import ENGINE_METHODS, ENGINE_OBSERVERS
from poolproof.contract.level import Level
from poolproof.contract.target import Capabilities
from poolproof.contract.trace import Trace
from poolproof.exploration.engine_grammar import scope_of_trace
from poolproof.exploration.shortest import ShortestResult, shortest_engine_failure
from poolproof.harness.block_sizes import EngineBlockSizesCampaign
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_facts import required_engine_facts
from poolproof.harness.engine_production import (
    EngineProductionCampaign,
    EngineSizes,
    required_engine_script_facts,
)
from poolproof.reference.native_engine import NativePlainEngine
from poolproof.stateful_tests.engine_machine import EngineMachine
from poolproof.targets.target import Make, Target

__all__ = ["CertifiedEngine"]

_UNSEEN = {
    "num_free": "the target shows no num_free(): blocks that are lost (LEAK) show only once too "
    "few are left for a request (LIVE)",
    "unfinished": "the target shows no unfinished(): requests that it never lets go of are not "
    "seen",
}
_MOST_COMMANDS_TO_SEARCH = 14

_ALWAYS = (
    "the worker: it is simulated, and does what a plan says; docs/engines.md has what that assumes",
    "time: requests have no deadlines, and nothing depends on a clock",
)


class CertifiedEngine(CertifiedLevel):
    """An engine; each of its set-ups has runs of its own."""

    level = Level.ENGINE
    search_grammar = "with the requests of the trace"
    share_of_states = 10
    is_searched_in_campaigns = False
    lessons = (
        Lesson(
            "submit(request_id, tokens, *, max_new_tokens, priority=0, extra_keys=None)",
            "a request waits for its turn",
            ("LIVE",),
        ),
        Lesson(
            "plan()",
            'the next step: {"compute": [{"request", "first", "count", "blocks"}, ...]}, nothing '
            "to compute where nobody waits",
            ("PLAN", "DATA", "LIVE"),
        ),
        Lesson(
            "answer(tokens, drafts)",
            "what the oldest step has sampled; answer [(request_id, tokens, ended), ...], up to "
            "the stop token 0 and the limit of each request",
            ("OUT", "LIVE"),
        ),
        Lesson("cancel(request_id)", "the request ends, in whatever state it is", ("OUT", "LEAK")),
        Lesson("num_free()", "how many blocks nobody holds", ("LEAK",)),
        Lesson("unfinished()", "the requests that the engine has not done with", ("LEAK",)),
        Lesson("reset()", "the prefix cache is emptied, if that can be", ("DATA",)),
        Lesson(
            "arrived(transfer_id, ok)", "a transfer that was in flight is over", ("DATA", "LIVE")
        ),
    )

    def kinds(self, about: Description) -> list[RunKind]:
        """One kind for each set-up that is run."""
        if about.level is not self.level:
            return []
        return [layout.kind for layout in about.layouts if not layout.why_not]

    def campaign(self, target: Target, chunk: Chunk) -> NumberedRuns:
        """Runs of one set-up: small ones, with other blocks, or scripts at production sizes."""
        layout = target.layout(chunk.kind.name_of_layout)
        assert layout.make is not None
        profile = chunk.profile or layout.profile
        assert isinstance(profile, EngineProfile)
        options: dict[str, Any] = {"layout": layout.name}
        if chunk.kind.block_sizes:
            return EngineBlockSizesCampaign(
                target.name, layout.make_with, profile, chunk.kind.block_sizes, chunk.seed, options
            )
        about = (target.name, layout.make, profile, layout.block_size, chunk.seed, options)
        sizes = chunk.kind.production
        if isinstance(sizes, EngineSizes):
            return EngineProductionCampaign(*about, sizes=sizes)
        return EngineCampaign(*about)

    def machine(self, kind: RunKind) -> MakeMachine:
        """The engines'."""
        del kind
        return EngineMachine

    def make(self, target: Target, trace: Trace) -> Make:
        """Those of the trace's set-up."""
        return target.layout(str(trace.options["layout"])).make_with(
            int(trace.options["block_size"])
        )

    def required_facts(self, about: Description, kind: RunKind) -> list[str]:
        """Those of the grammar that the set-up can show, or of the scripts."""
        layout = about.layout_of_kind(kind)
        if layout is None or layout.can is None:
            return []
        assert isinstance(layout.profile, EngineProfile)
        if isinstance(kind.production, EngineSizes):
            return required_engine_script_facts(layout.profile, layout.can, kind.production)
        return required_engine_facts(layout.profile, layout.can, layout.block_size)

    def planted(self, about: Description, kinds: Sequence[RunKind]) -> Iterable[PlantedRuns]:
        """Each bug once, in the first set-up under whose profile it is one.

        Bugs of our engine, where they fit, and the plainest engine, broken, which fits everywhere.
        """
        in_layouts: dict[str, PlantedRuns] = {}
        for layout in about.layouts if about.level is self.level else ():
            if layout.kind in kinds and layout.can is not None:
                for planted in (
                    *_specimens_in(layout, layout.can),
                    *_broken_in(layout, layout.can),
                ):
                    in_layouts.setdefault(planted.bug, planted)
        return in_layouts.values()

    def why_not_searched(self, trace: Trace) -> str | None:
        """A trace of many commands is beyond any search."""
        if len(trace.commands) > _MOST_COMMANDS_TO_SEARCH:
            return f"{len(trace.commands)} commands are too many to search"
        return None

    def shortest(self, trace: Trace, make: Make, wanted: Wanted) -> ShortestResult:
        """Over the requests of the trace and the tokens that its steps sample."""
        assert isinstance(trace.profile, EngineProfile)
        block_size = int(trace.options["block_size"])
        return shortest_engine_failure(
            make,
            trace.profile,
            scope_of_trace(trace.commands, trace.num_blocks, block_size),
            enable_caching=trace.enable_caching,
            max_commands=wanted.max_commands,
            max_states=wanted.max_states,
            max_applied=wanted.max_applied,
            is_wanted=wanted.is_wanted,
        )

    def open_points(self, about: Description, options: CertifyOptions) -> Sequence[str]:
        """What no engine is asked, and what this one does not show."""
        del options
        can = about.can_at(self.level)
        methods = (method for verb, method in ENGINE_METHODS.items() if verb not in can.verbs)
        lacking = dict.fromkeys(methods)  # a method may be behind several verbs
        return (
            *_ALWAYS,
            *(sentence for name, sentence in _UNSEEN.items() if not can.sees(name)),
            *([f"methods that the target lacks: {', '.join(lacking)}"] if lacking else []),
        )

    def left_out(self, about: Description, options: CertifyOptions) -> list[tuple[str, str]]:
        """Set-ups that are not run, or were not asked for."""
        left_out = []
        for layout in about.layouts:
            if layout.why_not:
                left_out.append((f"set-up {layout.name}", layout.why_not))
            elif options.layouts and layout.name not in options.layouts:
                left_out.append((f"set-up {layout.name}", "not asked for (--layout)"))
        return left_out

    def why_no_attention(self, about: Description) -> str | None:
        """The manager below an engine serves attention."""
        del about
        return "an engine's steps are simulated; its manager is certified by itself"

    def method_of(self, verb: str) -> str:
        """The method behind a verb."""
        return ENGINE_METHODS.get(verb, verb)


def _specimens_in(layout: LayoutDescription, can: Capabilities) -> Iterator[PlantedRuns]:
    """Our engine, with a bug, under the profile of a set-up, seen no better than the target.

    Of our engine block 0 is the null block, whichever of the target is, and it always shares
    prefixes and preempts.
    """
    assert isinstance(layout.profile, EngineProfile)
    profile = replace(layout.profile, null_block=0, prefix_hits="some", preemptions="some")
    size, hidden = layout.block_size, _hidden(can)
    for specimen in engine_canaries(profile, can):
        make = Veiled.maker(specimen.make_under(profile, size), hidden)
        runs = EngineCampaign(specimen.id, make, profile, size, seed=0)
        yield PlantedRuns(f"{specimen.id} {specimen.title}", runs)


def _hidden(can: Capabilities) -> frozenset[str]:
    """The methods that a target has not, and that may be missing."""
    hidden = {observer for observer in ENGINE_OBSERVERS if not can.sees(observer)}
    hidden |= {ENGINE_METHODS[verb] for verb in ("cancel", "reset") if verb not in can.verbs}
    return frozenset(hidden)


def _broken_in(layout: LayoutDescription, can: Capabilities) -> Iterable[PlantedRuns]:
    """The plainest engine under the profile of a set-up, broken."""
    profile, hidden = layout.profile, _hidden(can)
    assert isinstance(profile, EngineProfile)
    for words, broken in BROKEN_ENGINES.items():
        if NEEDS.get(words, "submit") not in can.verbs:
            continue
        make = partial(_build, broken, layout.block_size, profile)
        runs = EngineCampaign(words, Veiled.maker(make, hidden), profile, layout.block_size, seed=0)
        yield PlantedRuns(words, runs)


def _build(
    broken: type[NativePlainEngine],
    block_size: int,
    profile: EngineProfile,
    num_blocks: int,
    enable_caching: bool,
) -> NativePlainEngine:
    return broken(num_blocks, block_size, enable_caching=enable_caching, profile=profile)

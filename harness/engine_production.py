"""Runs of the engine level at the sizes of servers: what no short run of few requests shows.

A run plays one script: prompts of hundreds of blocks that part late, prompts that careless keys
confuse (`token_collisions.py`), hundreds of requests at once or beside one that stays, answers of
hundreds of tokens, hundreds of preemptions, cancellations and resets, thousands of steps. What a
script does not say is drawn: how many drafts are right, and which transfer ends first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import lcm

from poolproof.contract.commands import Command, Reset
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import (
    STOP_TOKEN,
    AnswerStep,
    Arrive,
    Cancel,
    PlanStep,
    RunStep,
    Submit,
)
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.target import Capabilities
from poolproof.contract.trace import Trace
from poolproof.harness.choices import Choices, SeededChoices
from poolproof.harness.engine_driver import TURN_EVERY, EngineCampaign
from poolproof.harness.engine_facts import HIT
from poolproof.harness.engine_session import EngineSession
from poolproof.harness.engine_workload import EngineWorkload
from poolproof.harness.token_collisions import ConfusablePrompts, Confusion
from poolproof.reference.engine_legality import undefined_for_engine
from poolproof.reference.engine_model import EngineModel

__all__ = [
    "ENGINE_SCRIPTS",
    "QUICK_ENGINE_SIZES",
    "EngineProductionCampaign",
    "EngineScript",
    "EngineSizes",
    "ScriptPlan",
    "required_engine_script_facts",
]

SCRIPT = "script"
"""The option of a trace that names its script."""

LONG_PROMPT = "a prompt of hundreds of tokens was computed"
CONFUSED = "prompts that careless keys confuse were served"
MANY_REQUESTS = "hundreds of requests were there at once"
MANY_PASSED = "hundreds of requests came and went beside one that stayed"
ONE_BEGINNING = "hundreds of requests were there at once whose prompts begin alike"
LONG_ANSWER = "a user was given hundreds of tokens"
LONG_DAY = "thousands of steps came in one run"

HUNDREDS = 200
_AT_ONCE = 12
"""Confusions whose prompts are served together."""
_DEPTHS_AT_ONCE = 24
_FEW_BLOCKS = 9
_MOST_TIMES = 4
"""So often a prompt is sent at most to see when it is found."""


@dataclass(frozen=True, slots=True)
class EngineSizes:
    """How large the runs are.

    num_blocks: for each cache group, where requests grow to the whole pool; engines are set up for
    a few thousand tokens in a request. num_requests: that are there at once,
    and that pass one that stays. num_depths: see `ConfusablePrompts.of_depths`. num_repeats:
    cancellations and resets in one run. num_commands: of a long run. Each script is played `rounds`
    times; of the set-ups of one engine each plays one script in `every`, from the `first` on.
    """

    num_blocks: int = 400
    num_requests: int = 260
    num_depths: int = 130
    num_repeats: int = 260
    num_commands: int = 4_000
    rounds: int = 1
    first: int = 0
    every: int = 1
    most_shares: int = 8

    def scripts_for(self, profile: EngineProfile) -> list[str]:
        """The names of the scripts that mean something under the profile, in their order."""
        names = [name for name, plan in ENGINE_SCRIPTS.items() if plan.is_for(profile)]
        return names[self.first % self.every :: self.every]

    def runs(self, profile: EngineProfile) -> range:
        """The numbers of the runs: each script in turn, in every round."""
        return range(self.rounds * len(self.scripts_for(profile)))

    @property
    def most_runs(self) -> int:
        """The runs of an engine for which no script is left out."""
        return self.rounds * len(ENGINE_SCRIPTS)

    def shared(self, place: int, num_layouts: int) -> EngineSizes:
        """The sizes for one of several set-ups: the first plays everything, the others share."""
        if place == 0:
            return self
        every = max(2, min(num_layouts - 1, self.most_shares))
        return replace(self, first=place - 1, every=every)


QUICK_ENGINE_SIZES = EngineSizes()


class EngineScript:
    """One run: what it asks of an engine, and what it has seen so far in `facts`."""

    def __init__(
        self,
        seed: str,
        model: EngineModel,
        can: Capabilities,
        sizes: EngineSizes,
        facts: set[str],
    ) -> None:
        self.choices: Choices = SeededChoices(f"script {seed}")
        self.below = self.choices.below
        self.model = model
        self.can = can
        self.sizes = sizes
        self.facts = facts
        # What can be shared ends where a block of every group ends.
        self.unit = lcm(*model.block_sizes)
        self.confusable = ConfusablePrompts(seed, self.unit)
        self._next_id = 0
        self._num_times = 0

    def submit(self, chain: TokenChain, max_new_tokens: int = 1, priority: int = 0) -> Submit:
        """A new request; the driver leaves out one that means nothing under the profile."""
        self._next_id += 1
        return Submit(self._next_id - 1, chain, max_new_tokens, priority)

    def tokens(self, count: int) -> tuple[int, ...]:
        """Any tokens but the one that stops requests."""
        return tuple(1 + self.below(2**20) for _ in range(count))

    def step(self, token: int = 1, *, going_on: bool = False) -> Command:
        """What brings the engine on by about a step; `going_on`, no draft ends a request."""
        model, below = self.model, self.below
        if model.transfers and (not model.in_flight or below(4) == 0):
            places = model.places_to_arrive()
            return Arrive(places[below(len(places))], 0)
        most = model.profile.draft_tokens
        accepted, drafts = (below(most + 1), below(most + 1)) if most else (0, 0)
        if going_on:
            tried = (request.drafts for request in model.live.values())
            ends = [drafts.index(STOP_TOKEN) for drafts in tried if STOP_TOKEN in drafts]
            accepted = min([accepted, *ends])
        for command in (
            RunStep(token, accepted, drafts),
            PlanStep(),
            AnswerStep(token, accepted, drafts),
        ):
            if undefined_for_engine(model, command) is None:
                return command
        raise AssertionError  # a step is planned or answered

    def settle(self) -> Iterator[Command]:
        """Steps until every request has ended and nothing is in flight."""
        while not self.model.is_idle:
            yield self.step()

    def serve(self, chains: Iterable[TokenChain]) -> Iterator[Command]:
        """These prompts are sent together, and each is answered with a token."""
        for chain in chains:
            if STOP_TOKEN not in chain.tokens:
                yield self.submit(chain)
        yield from self.settle()

    def cache(self, chains: Iterable[TokenChain]) -> Iterator[Command]:
        """These prompts are sent together, as often as a prompt has to come before it is found."""
        chosen = list(chains)
        if not self._num_times:
            yield from self._try_out()
        for _ in range(self._num_times):
            yield from self.serve(chosen)

    def _try_out(self) -> Iterator[Command]:
        """Send one prompt until it is found: an index may take none that comes once."""
        prompt = TokenChain(self.tokens(min(4 * self.unit, max(1, self.model.most_tokens - 1))))
        self._num_times = 1
        yield from self.serve([prompt])
        for number in range(1, _MOST_TIMES + 1):
            is_new = HIT not in self.facts
            yield from self.serve([prompt])
            if is_new and HIT in self.facts:
                self._num_times = number
                return

    def confuse(self, confusions: Iterable[Confusion]) -> Iterator[Command]:
        """What is cached first and what is then computed beside it, some confusions at a time."""
        left = iter(confusions)
        while batch := list(islice(left, _AT_ONCE)):
            yield from self.cache(chain for one in batch for chain in one.cached)
            yield from self.serve(chain for one in batch for chain in one.asked)
        if len(self.model.requests) > HUNDREDS:
            self.facts.add(CONFUSED)


Script = Callable[[EngineScript], Iterator[Command]]


def depths(run: EngineScript) -> Iterator[Command]:
    """A block behind a parent that is not its own, at many depths of a long prompt."""
    # A third of the pool: two prompts are cached, and a third is computed beside them.
    most = run.model.most_tokens // run.unit // 3
    for confusion in run.confusable.of_depths(most, run.sizes.num_depths):
        # The deepest first, and cached again between: a pool that evicts the ends of prompts first
        # would have lost them by the time that they are asked for.
        left = [*reversed(confusion.asked)]
        while left:
            yield from run.cache(confusion.cached)
            yield from run.serve(left[:_DEPTHS_AT_ONCE])
            del left[:_DEPTHS_AT_ONCE]
    if max(request.num_prompt_tokens for request in run.model.requests.values()) > HUNDREDS:
        run.facts.add(LONG_PROMPT)


def token_values(run: EngineScript) -> Iterator[Command]:
    """Token ids over their whole range, equal in some digits or bits, or under a bad hash."""
    yield from run.confuse(run.confusable.of_tokens())


def other_keys(run: EngineScript) -> Iterator[Command]:
    """Adapters, salts and images that are alike; the same blocks behind others."""
    yield from run.confuse(run.confusable.of_parents(24))
    yield from run.confuse(run.confusable.of_keys())
    yield from run.confuse(run.confusable.of_image_places())


def many_requests(run: EngineScript) -> Iterator[Command]:
    """Hundreds of short requests wait at once; some are cancelled, in any state."""
    count = run.sizes.num_requests
    for number in range(count):
        priority = run.below(3) if run.model.profile.policy == "priority" else 0
        chain = TokenChain(run.tokens(1 + number % (2 * run.unit)))
        yield run.submit(chain, 1 + run.below(3), priority)
    if len(run.model.live) > HUNDREDS:
        run.facts.add(MANY_REQUESTS)
    while run.model.live:
        yield run.step(2)
        if run.model.live and run.below(16) == 0:
            yield Cancel(list(run.model.live)[run.below(len(run.model.live))])
    yield from run.settle()


def beside_one(run: EngineScript) -> Iterator[Command]:
    """One request is answered on and on while hundreds of others come and go."""
    model, count = run.model, run.sizes.num_requests
    answer = min(3 * model.most_tokens // 4, 4 * count)
    stays = run.submit(TokenChain(run.tokens(run.unit)), answer)
    yield stays
    passed = 0
    while stays.request_id in model.live and passed < count:
        if len(model.live) < min(4, model.profile.max_running):
            yield run.submit(TokenChain(run.tokens(1 + run.below(run.unit))), 1)
            passed += 1
        yield run.step(1 + run.below(2), going_on=True)
    if passed > HUNDREDS:
        run.facts.add(MANY_PASSED)
    yield from run.settle()


def one_beginning(run: EngineScript) -> Iterator[Command]:
    """As many requests as may run share the blocks of one beginning, and end one by one."""
    model = run.model
    count = min(run.sizes.num_requests, model.profile.max_running)
    said = run.tokens(2 * run.unit)
    begins = TokenChain((*said, *run.tokens(1)))
    yield from run.cache([begins])
    for number in range(count):
        yield run.submit(TokenChain((*said, *run.tokens(1))), 4 + number % 8)
    if len(model.live) > HUNDREDS:
        run.facts.add(ONE_BEGINNING)
    while model.live:
        yield run.step(2, going_on=True)
    # Whoever was given a block that somebody had is read by the others now.
    yield from run.serve(TokenChain(run.tokens(3 * run.unit)) for _ in range(_AT_ONCE))
    yield from run.serve([begins])


def long_answers(run: EngineScript) -> Iterator[Command]:
    """Answers of up to the whole pool, and what users say next, with all that was said before."""
    model, below = run.model, run.below
    most = model.most_tokens
    said = run.tokens(3)
    for length in (most // 3, 2 * most // 3, most):
        answer = length - len(said) - 3
        if answer < 1:
            continue
        request = run.submit(TokenChain(said), answer)
        yield request
        while not model.is_idle:
            yield run.step(1 + below(2**20), going_on=True)
        told = model.requests[request.request_id].tokens
        said = (*(token for token in told if token != STOP_TOKEN), 1 + below(9))
        if len(told) > HUNDREDS:
            run.facts.add(LONG_ANSWER)


def preemptions(run: EngineScript) -> Iterator[Command]:
    """More requests than fit grow on and on, and take blocks from each other."""
    model = run.model
    most = model.most_tokens
    for number in range(run.sizes.num_repeats // 4):
        priority = number % 3 if model.profile.policy == "priority" else 0
        length = 1 + run.below(max(1, most // 4))
        yield run.submit(TokenChain(run.tokens(length)), max(1, most // 2), priority)
        while len(model.live) > 2:
            yield run.step(1 + run.below(2), going_on=True)
    yield from run.settle()


def cancellations(run: EngineScript) -> Iterator[Command]:
    """Hundreds of users go before they are answered, and all of them share a beginning."""
    said = run.tokens(2 * run.unit)
    for number in range(run.sizes.num_repeats):
        request = run.submit(TokenChain((*said, *run.tokens(1 + number % run.unit))), 3)
        yield request
        for _ in range(run.below(4)):
            yield run.step()
        if request.request_id in run.model.live:
            yield Cancel(request.request_id)
    yield from run.settle()


def resets(run: EngineScript) -> Iterator[Command]:
    """The cache is emptied hundreds of times: what was computed before is found never again.

    Asked for is what the last reset has emptied, and what was computed 1, 2, 4, ... resets ago: a
    count of resets in few bits has come round by then.
    """
    count = run.sizes.num_repeats
    again = TokenChain(run.tokens(run.unit + 1))
    kept = [TokenChain(run.tokens(run.unit + 1)) for _ in range(count.bit_length())]
    yield from run.cache(kept)
    for number in range(1, count + 1):
        yield from run.cache([again])
        yield Reset()
        if number & (number - 1) == 0:
            yield from run.serve([kept[number.bit_length() - 1]])


def long_day(run: EngineScript) -> Iterator[Command]:
    """Thousands of steps of the usual traffic on few blocks."""
    workload = EngineWorkload(run.choices, run.model, run.can)
    for number in range(run.sizes.num_commands):
        if number % TURN_EVERY == 0:
            workload.bias()
        yield workload.next()
    run.facts.add(LONG_DAY)


@dataclass(frozen=True, slots=True)
class ScriptPlan:
    """A script, the blocks that it needs for each group, and what it must reach."""

    script: Script
    num_blocks: Callable[[EngineSizes], int]
    facts: Callable[[EngineProfile, Capabilities], tuple[str, ...]] = lambda *_: ()
    is_for: Callable[[EngineProfile], bool] = lambda _: True


def _finds(profile: EngineProfile) -> bool:
    return profile.prefix_hits != "never"


def _many_at_once(profile: EngineProfile, _: Capabilities) -> tuple[str, ...]:
    return (ONE_BEGINNING,) if profile.max_running > HUNDREDS else ()


def _always(*facts: str) -> Callable[[EngineProfile, Capabilities], tuple[str, ...]]:
    return lambda *_: facts


def _unbounded(*facts: str) -> Callable[[EngineProfile, Capabilities], tuple[str, ...]]:
    """Reached where a request may have as many tokens as the blocks hold."""
    return lambda profile, _: () if profile.max_request_tokens else facts


ENGINE_SCRIPTS: Mapping[str, ScriptPlan] = {
    "depths": ScriptPlan(depths, lambda sizes: sizes.num_blocks, _unbounded(LONG_PROMPT), _finds),
    "other keys": ScriptPlan(other_keys, lambda _: 200, _always(CONFUSED), _finds),
    "beside one": ScriptPlan(beside_one, lambda sizes: sizes.num_blocks, _unbounded(MANY_PASSED)),
    "token values": ScriptPlan(token_values, lambda _: 200, _always(CONFUSED), _finds),
    "many requests": ScriptPlan(many_requests, lambda _: 24, _always(MANY_REQUESTS)),
    # Each has a few blocks of its own behind those that all share.
    "one beginning": ScriptPlan(
        one_beginning, lambda sizes: 5 * sizes.num_requests, _many_at_once, _finds
    ),
    "long answers": ScriptPlan(
        long_answers, lambda sizes: sizes.num_blocks, _unbounded(LONG_ANSWER)
    ),
    # What was computed before all resets is not written over meanwhile.
    "resets": ScriptPlan(resets, lambda sizes: 3 * sizes.num_repeats, is_for=_finds),
    "preemptions": ScriptPlan(preemptions, lambda _: 24),
    "cancellations": ScriptPlan(cancellations, lambda _: 24),
    "long day": ScriptPlan(long_day, lambda _: _FEW_BLOCKS, _always(LONG_DAY)),
}
"""By name."""


def required_engine_script_facts(
    profile: EngineProfile, can: Capabilities, sizes: EngineSizes
) -> list[str]:
    """The facts that runs of these sizes must reach under this profile."""
    found = [ENGINE_SCRIPTS[name].facts(profile, can) for name in sizes.scripts_for(profile)]
    return list(dict.fromkeys(fact for facts in found for fact in facts))


@dataclass(frozen=True, slots=True)
class EngineProductionCampaign(EngineCampaign):
    """An engine to run against, whose runs are scripts, one after the other, at these sizes."""

    sizes: EngineSizes = QUICK_ENGINE_SIZES

    def plans(self) -> Mapping[str, ScriptPlan]:
        """What the runs play, by name and in turn."""
        return {name: ENGINE_SCRIPTS[name] for name in self.sizes.scripts_for(self.profile)}

    def setup(self, number: int) -> Trace:
        """The header of the trace that run number `number` writes if it fails."""
        plans, profile = self.plans(), self.profile
        name = list(plans)[number % len(plans)]
        usable = plans[name].num_blocks(self.sizes) * len(profile.groups)
        usable += profile.num_state_blocks
        usable *= profile.instances
        setup = EngineCampaign.setup(self, number)
        null = profile.null_block
        return replace(
            setup,
            num_blocks=max(usable + (null is not None), 0 if null is None else null + 1),
            enable_caching=True,
            options={**setup.options, SCRIPT: name},
        )

    def _commands(self, setup: Trace, session: EngineSession) -> Iterator[Command]:
        """The script, as far as it means something, and what brings the engine to rest."""
        model, can = session.model, session.can
        run = EngineScript(str(setup.options["seed"]), model, can, self.sizes, session.facts)
        for command in self.plans()[str(setup.options[SCRIPT])].script(run):
            if command.verb in can.verbs and undefined_for_engine(model, command) is None:
                yield command
        drain = EngineWorkload(run.choices, model, can).drain
        yield from iter(drain, None)

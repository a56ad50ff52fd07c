"""Drives a consumer of KV events: engines that cache and evict, batches that are lost and replayed.

The engines are simulated, so what each has is known. After each step every prompt is looked up. A
block that the consumer says an engine has and that it has not is residency that does not exist; one
that it misses is a lost hit. Where nobody could know, nothing is judged: between a loss and the
next batch that shows it. After a loss for good fewer blocks may be answered, and never more.

The consumer runs in this process, without limits. Not covered: several block sizes, windows that
skip blocks, and clocks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from poolproof.contract.consumer_target import ConsumerProfile
from poolproof.contract.outside import class_name, said_by, shown
from poolproof.contract.prefix_words import listed

__all__ = ["ConsumerStep", "ConsumerVerdict", "check_consumer", "play"]

BLOCK_SIZE = 2
ENGINES = ("a", "b", "c")
Prompt = tuple[tuple[int, ...], str | None, str | None]
PROMPTS: tuple[Prompt, ...] = (
    ((1, 1, 2, 2, 3, 3, 4, 4), None, None),
    ((1, 1, 2, 2, 5, 5), None, None),
    ((2, 2, 3, 3, 1, 1), None, None),
    ((3, 3, 2, 2, 3, 3), None, None),
    ((1, 1, 1, 1, 1, 1), None, None),
    ((1, 1, 2, 2, 3, 3), "x", None),
    ((1, 1, 2, 2, 3, 3), None, "s"),
)
"""Tokens, adapter and salt: equal blocks behind other ones, and equal tokens that share nothing."""

SITUATIONS = (
    "a block was evicted whose successors stayed",
    "one of two copies was evicted",
    "a block was on another medium alone",
    "an engine lost what another one has",
    "a cache was cleared",
    "an engine restarted",
    "a lost batch was sent again",
    "a lost batch was gone for good",
    "batches were sent again that had come",
)


IF_IT_ASKS = ("a lost batch was sent again", "a lost batch was gone for good")


@dataclass(frozen=True, slots=True)
class ConsumerStep:
    """One thing that happens: `what`, to which engine, and two numbers that it is about."""

    what: str
    engine: int
    one: int = 0
    other: int = 0


_WEIGHTS = {
    "serve": 10, "copy": 3, "evict": 6, "offload": 3, "drop": 2, "clear": 1, "restart": 1,
    "lose": 3, "replay": 2,
}  # fmt: skip


@dataclass(slots=True)
class ConsumerVerdict:
    """What was seen of a consumer; `steps` are the fewest found, in words, if there is a violation.

    `kind` is "not-resident", "lost-hit", "answer" (one that is none) or "crash". `never` are the
    situations that did not occur.
    """

    num_runs: int = 0
    num_steps: int = 0
    num_lookups: int = 0
    violation: str | None = None
    kind: str | None = None
    steps: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing was found, and everything has occurred in which something might be."""
        return self.violation is None and not self.never


class _ViolationError(Exception):
    """Something broken: its kind, and the sentence."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


@dataclass(slots=True)
class _Engine:
    """A simulated engine: the copies of blocks that it has on each medium, and its batches."""

    name: str
    resident: dict[str, list[int]] = field(default_factory=lambda: {"GPU": [], "CPU": []})
    sequence: int = 0
    kept: list[dict[str, Any]] = field(default_factory=list)
    loses_next: bool = False
    forgets_lost: bool = False
    is_silent: bool = False
    is_excused: bool = False


class _World:
    """The engines, the wire and the consumer."""

    def __init__(self, consumer: Any, profile: ConsumerProfile) -> None:
        self.consumer = consumer
        self.profile = profile
        self.engines = [_Engine(name) for name in ENGINES]
        self.met: set[str] = set()
        self.words: list[str] = []
        self.num_lookups = 0
        self.has_asked = False
        self._hashes: dict[Prompt, int] = {}
        self._prefixes: dict[int, Prompt] = {}

    def step(self, step: ConsumerStep) -> None:
        """Something happens, and every prompt is looked up. Raises _ViolationError."""
        engine = self.engines[step.engine % len(self.engines)]
        getattr(self, f"_{step.what}")(engine, step)
        self._check()

    def _chain(self, prompt: Prompt) -> list[int]:
        """The hashes of a prompt's blocks."""
        tokens, lora, salt = prompt
        ends = range(BLOCK_SIZE, len(tokens) + 1, BLOCK_SIZE)
        return [self._hash((tokens[:end], lora, salt)) for end in ends]

    def _hash(self, prefix: Prompt) -> int:
        number = self._hashes.setdefault(prefix, 100 + len(self._hashes))
        self._prefixes[number] = prefix
        return number

    def _serve(self, engine: _Engine, step: ConsumerStep) -> None:
        """A prompt is computed as far as it is not on the device; runs of new blocks are told."""
        prompt = PROMPTS[step.one % len(PROMPTS)]
        chain = self._chain(prompt)[: 1 + step.other % 4]
        new = [h for h in chain if h not in engine.resident["GPU"]]
        events = []
        for begin, end in _runs(chain, set(new)):
            parent = chain[begin - 1] if begin else None
            events.append(self._stored(chain[begin:end], parent, "GPU"))
        engine.resident["GPU"] += new
        if events:
            self._publish(
                engine, f"{engine.name} computes {_words(prompt)}, {len(new)} blocks", events
            )

    def _copy(self, engine: _Engine, step: ConsumerStep) -> None:
        """Two requests have computed the same block at the same time."""
        if not (block := _pick(engine.resident["GPU"], step.one)):
            return
        engine.resident["GPU"].append(block)
        events = [self._stored([block], self._parent(block), "GPU")]
        self._publish(engine, f"{engine.name} has a second copy of {self._named(block)}", events)

    def _evict(self, engine: _Engine, step: ConsumerStep) -> None:
        on_device = engine.resident["GPU"]
        gone = []
        for number in range(1 + step.other % 2):
            if block := _pick(on_device, step.one + number):
                on_device.remove(block)
                gone.append(block)
                self._note_eviction(engine, block)
        if gone:
            what = " and ".join(map(self._named, gone))
            self._publish(engine, f"{engine.name} evicts {what}", [_removed(gone, "GPU")])

    def _offload(self, engine: _Engine, step: ConsumerStep) -> None:
        """A block is copied to the host; whether the event has the tokens differs by tier."""
        block = _pick(engine.resident["GPU"], step.one)
        if not block or block in engine.resident["CPU"]:
            return
        engine.resident["CPU"].append(block)
        event = self._stored([block], self._parent(block), "CPU")
        if step.other % 2:
            event |= {"tokens": [], "parent": None}
        self._publish(engine, f"{engine.name} copies {self._named(block)} to the host", [event])

    def _drop(self, engine: _Engine, step: ConsumerStep) -> None:
        if not (block := _pick(engine.resident["CPU"], step.one)):
            return
        engine.resident["CPU"].remove(block)
        what = f"{engine.name} drops {self._named(block)} from the host"
        self._publish(engine, what, [_removed([block], "CPU")])

    def _clear(self, engine: _Engine, _step: ConsumerStep) -> None:
        if any(engine.resident.values()):
            self.met.add("a cache was cleared")
        _empty(engine)
        self._publish(engine, f"{engine.name} clears its cache", [{"type": "cleared"}])

    def _restart(self, engine: _Engine, _step: ConsumerStep) -> None:
        """A fresh engine: its first batch always comes, or nobody could tell."""
        if not engine.sequence:
            return
        if any(engine.resident.values()):
            self.met.add("an engine restarted")
        _empty(engine)
        engine.kept.clear()
        engine.sequence = 0
        engine.loses_next = engine.is_silent = engine.is_excused = False
        self._publish(engine, f"{engine.name} restarts", [])

    def _lose(self, engine: _Engine, step: ConsumerStep) -> None:
        """The next batch does not come, and some are not kept for being asked for either."""
        engine.loses_next = True
        engine.forgets_lost = step.one % 3 == 0

    def _replay(self, engine: _Engine, step: ConsumerStep) -> None:
        """Batches come again that somebody had asked for."""
        if engine.is_silent or not engine.kept:
            return
        again = engine.kept[-1 - step.one % 4 :]
        self.words.append(f"{len(again)} batches of {engine.name} are sent again")
        self.met.add("batches were sent again that had come")
        for batch in again:
            self._apply({**batch, "replayed": True})

    def _publish(self, engine: _Engine, what: str, events: list[dict[str, Any]]) -> None:
        batch = {
            "engine": engine.name, "sequence": engine.sequence, "replayed": False, "events": events,
        }  # fmt: skip
        engine.sequence += 1
        if engine.loses_next:
            engine.loses_next, engine.is_silent = False, True
            engine.kept += [] if engine.forgets_lost else [batch]
            self.words.append(f"{what}: batch {batch['sequence']} is lost")
            return
        engine.kept.append(batch)
        self.words.append(f"{what}: batch {batch['sequence']}")
        was_silent, engine.is_silent = engine.is_silent, False
        wanted = self._apply(batch)
        if wanted is not None:
            self._send_again(engine, wanted)
        elif was_silent:
            # It is content with what it heard, which may be less than there is.
            engine.is_excused = True
        if events and events[-1]["type"] == "cleared":
            engine.is_excused = False

    def _send_again(self, engine: _Engine, wanted: int) -> None:
        kept = [batch for batch in engine.kept if batch["sequence"] >= wanted]
        self.has_asked = True
        first, last = kept[0]["sequence"], kept[-1]["sequence"]
        self.words.append(f"batches {first} to {last} of {engine.name} come again")
        expected = wanted
        for batch in kept:
            self._apply({**batch, "replayed": True})
            if batch["sequence"] > expected:
                engine.is_excused = True
            expected = batch["sequence"] + 1
            if any(event["type"] == "cleared" for event in batch["events"]):
                engine.is_excused = False
        is_whole = len(kept) == last + 1 - wanted
        self.met.add(IF_IT_ASKS[0] if is_whole else IF_IT_ASKS[1])

    def _apply(self, batch: dict[str, Any]) -> int | None:
        """Raises _ViolationError for an exception, or an answer that is none."""
        given = {**batch, "events": [dict(event) for event in batch["events"]]}
        try:
            wanted = self.consumer.apply(given)
        except Exception as error:
            raise _ViolationError(
                "crash",
                f"apply() raised {class_name(error)} for batch {batch['sequence']} of engine "
                f"{batch['engine']}: {said_by(error, 200)}",
            ) from error
        if wanted is None or batch["replayed"]:
            return None
        if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 0:
            raise _ViolationError(
                "answer",
                f"apply() answered {shown(wanted)}: it answers None, or the number of the first "
                "batch that it wants again",
            )
        return min(wanted, int(batch["sequence"]))

    def _check(self) -> None:
        for prompt in PROMPTS:
            answered = self._lookup(prompt)
            for engine in self.engines:
                if not engine.is_silent:
                    self._judge(engine, prompt, answered.get(engine.name, 0))

    def _lookup(self, prompt: Prompt) -> Mapping[str, Any]:
        tokens, lora, salt = prompt
        self.num_lookups += 1
        try:
            answered = self.consumer.lookup(list(tokens), lora=lora, salt=salt)
        except Exception as error:
            raise _ViolationError(
                "crash", f"lookup() of {_words(prompt)} raised {class_name(error)}: "
                f"{said_by(error, 200)}",
            ) from error  # fmt: skip
        if not isinstance(answered, Mapping) or not all(
            isinstance(n, int) for n in answered.values()
        ):
            raise _ViolationError(
                "answer",
                f"lookup() answered {shown(answered)}: it answers a number of blocks for each "
                "engine",
            )
        unknown = set(answered) - {engine.name for engine in self.engines}
        if unknown:
            raise _ViolationError(
                "answer", f"lookup() names engine {shown(min(unknown, key=repr))}"
            )
        return answered

    def _judge(self, engine: _Engine, prompt: Prompt, answered: int) -> None:
        real = 0
        for block in self._chain(prompt):
            if not any(block in engine.resident[medium] for medium in self.profile.media):
                break
            real += 1
        said = f"lookup of {_words(prompt)} says that engine {engine.name} has {answered} blocks"
        if answered > real:
            raise _ViolationError("not-resident", f"{said}; it has {real}")
        if answered < real and not engine.is_excused:
            raise _ViolationError("lost-hit", f"{said}; it has {real}")

    def _note_eviction(self, engine: _Engine, block: int) -> None:
        on_device = engine.resident["GPU"]
        if block in on_device:
            self.met.add("one of two copies was evicted")
        elif block in engine.resident["CPU"]:
            self.met.add("a block was on another medium alone")
        if any(self._parent(other) == block for other in on_device):
            self.met.add("a block was evicted whose successors stayed")
        if any(block in other.resident["GPU"] for other in self.engines if other is not engine):
            self.met.add("an engine lost what another one has")

    def _stored(self, hashes: Sequence[int], parent: int | None, medium: str) -> dict[str, Any]:
        tokens, lora, salt = self._prefixes[hashes[-1]]
        return {
            "type": "stored", "hashes": list(hashes), "parent": parent,
            "tokens": list(tokens[-BLOCK_SIZE * len(hashes) :]), "block_size": BLOCK_SIZE,
            "medium": medium, "lora": lora, "salt": salt,
        }  # fmt: skip

    def _parent(self, block: int) -> int | None:
        tokens, lora, salt = self._prefixes[block]
        rest = tokens[:-BLOCK_SIZE]
        return self._hash((rest, lora, salt)) if rest else None

    def _named(self, block: int) -> str:
        return f"the last block of {_words(self._prefixes[block])}"


def _removed(hashes: Sequence[int], medium: str) -> dict[str, Any]:
    return {"type": "removed", "hashes": list(hashes), "medium": medium}


def _empty(engine: _Engine) -> None:
    for blocks in engine.resident.values():
        blocks.clear()


def _pick(blocks: Sequence[int], number: int) -> int:
    """One of the blocks; 0, which no block is called, if there is none."""
    return blocks[number % len(blocks)] if blocks else 0


def _runs(chain: Sequence[int], new: set[int]) -> Iterator[tuple[int, int]]:
    """The stretches of a chain that are new, as (begin, end)."""
    begin = 0
    while begin < len(chain):
        end = begin
        while end < len(chain) and chain[end] in new:
            end += 1
        if end > begin:
            yield begin, end
        begin = end + 1


def _words(prompt: Prompt) -> str:
    tokens, lora, salt = prompt
    extras = (f" with adapter {lora}" if lora else "") + (f" with salt {salt}" if salt else "")
    return f"{listed(tokens)}{extras}"


def play(
    make: Callable[[int], Any], profile: ConsumerProfile, steps: Sequence[ConsumerStep]
) -> tuple[str | None, str | None, list[str], _World]:
    """Kind and sentence of the first violation that the steps show, and what happened in words."""
    try:
        consumer = make(BLOCK_SIZE)
    except Exception as error:
        sentence = f"it cannot be built with block_size={BLOCK_SIZE}: {said_by(error, 200)}"
        return "crash", sentence, [], _World(None, profile)
    world = _World(consumer, profile)
    try:
        for step in steps:
            world.step(step)
    except _ViolationError as found:
        return found.kind, str(found), world.words, world
    return None, None, world.words, world


def check_consumer(
    make: Callable[[int], Any],
    profile: ConsumerProfile,
    *,
    num_runs: int = 100,
    num_steps: int = 40,
    seed: int = 0,
) -> ConsumerVerdict:
    """Drive fresh consumers until one breaks; then find fewer steps that break it in that way."""
    verdict = ConsumerVerdict()
    met: set[str] = set()
    has_asked = False
    names, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    for run in range(num_runs):
        rng = random.Random(f"{seed} {run}")
        steps = [
            ConsumerStep(what, rng.randrange(len(ENGINES)), rng.randrange(64), rng.randrange(64))
            for what in rng.choices(names, weights, k=num_steps)
        ]
        kind, _, _, world = play(make, profile, steps)
        met |= world.met
        has_asked = has_asked or world.has_asked
        verdict.num_runs += 1
        verdict.num_steps += len(steps)
        verdict.num_lookups += world.num_lookups
        if kind is not None:
            small = _smallest(make, profile, steps, kind)
            verdict.kind, verdict.violation, words, _ = play(make, profile, small)
            verdict.steps = tuple(words)
            return verdict
    needed = SITUATIONS if has_asked else [name for name in SITUATIONS if name not in IF_IT_ASKS]
    verdict.never = tuple(name for name in needed if name not in met)
    return verdict


def _smallest(
    make: Callable[[int], Any], profile: ConsumerProfile, steps: list[ConsumerStep], kind: str
) -> list[ConsumerStep]:
    """Fewer steps, with smaller numbers, that show the same kind of violation."""
    size = len(steps)
    while size:
        begin = 0
        while begin < len(steps):
            fewer = steps[:begin] + steps[begin + size :]
            if play(make, profile, fewer)[0] == kind:
                steps = fewer
            else:
                begin += size
        size //= 2
    for number, step in enumerate(steps):
        for engine, one, other in ((0, 0, 0), (0, step.one, step.other), (step.engine, 0, 0)):
            plain = ConsumerStep(step.what, engine, one, other)
            changed = [*steps[:number], plain, *steps[number + 1 :]]
            if plain != steps[number] and play(make, profile, changed)[0] == kind:
                steps = changed
                break
    return steps

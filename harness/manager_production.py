"""Runs of a manager at the sizes that servers have: long scripts, each about one thing.

A usual run has three to twelve blocks and five sequences. These scripts drive what shows only
beyond that: prompts of hundreds of blocks, hundreds of sequences and of forks, tokens over the
whole range of their ids and prompts that bad keys confuse (`token_collisions.py`), rows that reach
the declared width, one refusal hundreds of times, and long runs. Each script is drawn from its seed
and gives only legal commands; the session checks them like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import lcm

from poolproof.contract.commands import Command, Reset
from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_commands import (
    Abort,
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Fork,
    Load,
    Loaded,
    LookupPrefix,
    Preempt,
    Resume,
    Schedule,
    Step,
    SwapIn,
    SwapOut,
    Truncate,
)
from poolproof.contract.manager_profile import ManagerProfile, slots_ahead
from poolproof.contract.target import Capabilities
from poolproof.harness.choices import Choices, SeededChoices
from poolproof.harness.manager_workload import ManagerWorkload
from poolproof.harness.token_collisions import LARGEST_TOKEN, ConfusablePrompts, Confusion
from poolproof.reference.manager_legality import goes_round
from poolproof.reference.recurrent_states import has_state
from poolproof.reference.sequence_model import SequenceModel, SequenceState

__all__ = [
    "QUICK_SIZES",
    "SCRIPTS",
    "ManagerScript",
    "ManagerSizes",
    "Plan",
    "life",
    "required_script_facts",
]


CONFUSED = "prompts that bad keys confuse were computed"
LONG_PROMPT = "a prompt of hundreds of blocks was computed"
MANY_SEQUENCES = "hundreds of sequences were alive at once"
MANY_REFERENCES = "a block had hundreds of references"
MANY_REFUSALS = "hundreds of admissions were refused"
MANY_PREEMPTIONS = "hundreds of preemptions were made"
FULL_ROW = "a sequence reached the width of a row"
LONG_RUN = "thousands of commands came in one run"

_MOST_TIMES = 4
"""So often a prompt is computed at most to see when it is found."""


@dataclass(frozen=True, slots=True)
class ManagerSizes:
    """How large the runs of a level are.

    num_blocks: of the largest pools. num_prompts: different prompts that are cached, and as many
    asked for. num_giant_steps: see `ConfusablePrompts.of_bases`. num_sequences and num_references:
    alive at once, and in one block. num_repeats: refusals, preemptions, cuts and swaps in one run.
    num_depths: see `ConfusablePrompts.of_depths`. num_far_tokens: so many are equal in prompts that
    differ behind them; 0: there are none. num_commands: of a long run. Each script is
    played `rounds` times, with other tokens and lengths; of the layouts of one manager each plays
    one script in `every`, from the `first` on, which is at most `most_shares`.
    """

    num_blocks: int = 4_096
    num_prompts: int = 1_000
    num_giant_steps: int = 256
    num_sequences: int = 257
    num_references: int = 300
    num_repeats: int = 300
    num_depths: int = 130
    num_far_tokens: int = 0
    num_commands: int = 10_000
    rounds: int = 1
    first: int = 0
    every: int = 1
    most_shares: int = 4

    def scripts_for(self, profile: ManagerProfile) -> list[str]:
        """The names of the scripts that mean something under the profile, in their order.

        Of those that need no blocks at these sizes there are none.
        """
        names = [
            name for name, plan in SCRIPTS.items() if plan.is_for(profile) and plan.num_blocks(self)
        ]
        return names[self.first % self.every :: self.every]

    def runs(self, profile: ManagerProfile) -> range:
        """The numbers of the runs: each script in turn, in every round."""
        return range(self.rounds * len(self.scripts_for(profile)))

    @property
    def most_runs(self) -> int:
        """The runs of a manager for which no script is left out."""
        return self.rounds * len(SCRIPTS)

    def shared(self, place: int, num_layouts: int) -> ManagerSizes:
        """The sizes for one of several layouts: the first plays everything, the others share."""
        if place == 0:
            return self
        every = max(2, min(num_layouts - 1, self.most_shares))
        return replace(self, first=place - 1, every=every)


# Engines have many layouts, vLLM 17: together these play everything twice.
QUICK_SIZES = ManagerSizes(most_shares=16)


class ManagerScript:
    """One run: what it asks of a manager, and what it has seen so far in `facts`.

    `sequences` are those of `model`, the state that its commands refer to. A command that comes
    out is legal where it was drawn; the driver leaves out verbs that the target lacks.
    """

    def __init__(
        self,
        seed: str,
        model: SequenceModel,
        can: Capabilities,
        sizes: ManagerSizes,
        facts: set[str],
    ) -> None:
        self.choices: Choices = SeededChoices(f"script {seed}")
        self.below = self.choices.below
        self.model = model
        self.sequences = model.sequences
        self.can = can
        self.sizes = sizes
        self.facts = facts
        # What can be shared ends where a block of every group ends.
        self.unit = lcm(*model.block_sizes)
        num_after = model.profile.proof_blocks * max(model.block_sizes) // self.unit
        after = model.profile.proof_blocks and max(1, num_after)
        self.confusable = ConfusablePrompts(seed, self.unit, after)
        self.num_usable = len(model.pool.free) - model.profile.watermark_blocks
        self.most_tokens = self._most_tokens()
        self._next_id = 0
        self._num_times = 0

    def _most_tokens(self) -> int:
        """The longest prompt that fits into an empty pool."""
        model = self.model
        entries = self.num_usable // len(model.groups)
        fits = entries * min(model.block_sizes) - slots_ahead(model.profile)
        return min(fits, model.profile.max_tokens or fits)

    # Small parts of scripts.

    def new_id(self) -> int:
        """A number that no sequence has had."""
        self._next_id += 1
        return self._next_id - 1

    def admit(self, chain: TokenChain, num_tokens: int = 0) -> Admit:
        """A new sequence of this prompt."""
        return Admit(self.new_id(), chain, num_tokens)

    def tokens(self, count: int) -> tuple[int, ...]:
        """Any tokens."""
        block = self.confusable.block
        drawn: list[int] = []
        while len(drawn) < count:
            drawn += block()
        return tuple(drawn[:count])

    def running(self) -> list[SequenceState]:
        """The sequences that hold blocks and have nothing left to compute."""
        return [
            s
            for s in self.sequences.values()
            if s.place == "device" and s.num_computed == s.num_tokens and not s.num_scheduled
        ]

    def end_all(self, *, backwards: bool = False) -> Iterator[Command]:
        """The next step, then every sequence ends."""
        yield Step()
        numbers = list(self.sequences)
        for seq_id in reversed(numbers) if backwards else numbers:
            yield Finish(seq_id)

    def compute(self, chains: Iterable[TokenChain], at_once: int = 64) -> Iterator[Command]:
        """Each prompt is computed and finished, some in one step; the pool is empty before."""
        left = iter(chains)
        while batch := list(islice(left, at_once)):
            for chain in batch:
                command = self.admit(chain)
                yield command
                if command.seq_id not in self.sequences:
                    yield from self.end_all()
                    yield self.admit(chain)
            yield from self.end_all()

    def cache(self, chains: Iterable[TokenChain]) -> Iterator[Command]:
        """Each prompt is computed as often as it has to come before it is found."""
        chosen = list(chains)
        if not self._num_times:
            self._num_times = 1 + self.model.profile.prior_sightings
            if self.model.profile.hits == "sound":
                yield from self._try_out()
        for _ in range(self._num_times):
            yield from self.compute(chosen)

    def _try_out(self) -> Iterator[Command]:
        """Compute one prompt until it is found, where no row says how often that is."""
        prompt = TokenChain(self.tokens(min(2 * self.unit + 1, max(1, self.most_tokens))))
        for number in range(_MOST_TIMES + 1):
            command = self.admit(prompt)
            yield command
            admitted = self.sequences.get(command.seq_id)
            is_found = admitted is not None and admitted.num_computed > 0
            yield from self.end_all()
            if number and is_found:
                self._num_times = number
                return

    def ask(self, chains: Iterable[TokenChain]) -> Iterator[Command]:
        """Each prompt is asked for, by a lookup or else by an admission."""
        if "lookup_prefix" in self.can.verbs:
            yield from map(LookupPrefix, chains)
        else:
            yield from self.compute(chains, 1)

    def confuse(self, confusions: Iterable[Confusion]) -> Iterator[Command]:
        """What is cached first and what is then computed beside it, a few confusions at a time."""
        left = iter(confusions)
        while batch := list(islice(left, 8)):
            yield from self.cache(chain for one in batch for chain in one.cached)
            yield from self.compute(chain for one in batch for chain in one.asked)
        self.facts.add(CONFUSED)


Script = Callable[[ManagerScript], Iterator[Command]]


def token_values(run: ManagerScript) -> Iterator[Command]:
    """Token ids over their whole range, equal in some digits or bits, or under a bad hash."""
    yield from run.confuse(run.confusable.of_tokens())


def parents(run: ManagerScript) -> Iterator[Command]:
    """The same blocks behind other blocks, near and far."""
    most = run.most_tokens // run.unit
    yield from run.confuse(run.confusable.of_parents(most))


def depths(run: ManagerScript) -> Iterator[Command]:
    """A block behind a parent that is not its own, at every depth of a long prompt."""
    # A quarter of the pool: two prompts are cached, and a third is computed beside them.
    most = run.most_tokens // run.unit // 4
    for confusion in run.confusable.of_depths(most, run.sizes.num_depths):
        yield from run.cache(confusion.cached)
        yield from run.ask(confusion.asked)


def far_tokens(run: ManagerScript) -> Iterator[Command]:
    """A prompt that is another one for as many tokens as are counted in 16 bits, and more."""
    far = run.sizes.num_far_tokens
    if far + 3 * run.unit <= run.most_tokens:
        confusion = run.confusable.of_far_tokens(far)
        yield from run.cache(confusion.cached)
        yield from run.ask(confusion.asked)


def short_parents(run: ManagerScript) -> Iterator[Command]:
    """Parents of which only some bits are in the key."""
    confusion = run.confusable.of_short_parents(run.sizes.num_prompts // 2)
    yield from run.cache(confusion.cached)
    yield from run.ask(confusion.asked)


def bases(run: ManagerScript) -> Iterator[Command]:
    """Polynomials of every base and remainders by every number, up to a bound."""
    for confusion in run.confusable.of_bases(run.sizes.num_giant_steps):
        yield from run.cache(confusion.cached)
        yield from run.ask(confusion.asked)


def many_prompts(run: ManagerScript) -> Iterator[Command]:
    """As many different prompts as a busy server caches: short hashes collide by chance.

    Some of the cached prompts are also looked up, the last ones first.
    """
    confusion = run.confusable.of_chance(run.sizes.num_prompts)
    yield from run.cache(confusion.cached)
    yield from run.ask(confusion.asked)
    yield from run.ask(confusion.cached[::-9])
    # Nothing of it is found any more, wherever it stands in an index.
    yield Reset()
    yield from run.ask(confusion.cached[::7])


def extra_keys(run: ManagerScript) -> Iterator[Command]:
    """Adapters, salts and images with names that are alike."""
    yield from run.confuse(run.confusable.of_keys())
    yield from run.confuse(run.confusable.of_image_places())


def long_prompts(run: ManagerScript) -> Iterator[Command]:
    """Prompts around the powers of two, in tokens and in blocks, up to the whole pool.

    Each grows past the end of its block, is looked up again, and again with one token changed.
    """
    unit, most = run.unit, run.most_tokens
    lengths = {most, most - 1 - run.below(unit)}
    size = unit * 8
    while size < most:
        lengths |= {size - 1 + run.below(3), size + run.below(unit)}
        size *= 2
    earlier: list[TokenChain] = []
    for length in sorted(length for length in lengths if 0 < length <= most):
        tokens = run.tokens(length)
        chain = TokenChain(tokens)
        yield run.admit(chain)
        if length >= 200 * unit and run.sequences:
            run.facts.add(LONG_PROMPT)
        # Its blocks were taken from these, and nothing has been written into them yet.
        yield from map(LookupPrefix, earlier[-3:])
        earlier.append(chain)
        yield Step()
        yield from _grow(run, min(3, most - length))
        yield from run.end_all()
        yield from run.compute([chain])
        changed = [_with_other_token(run, tokens, place) for place in _places(run, length)]
        yield from run.ask(changed[::-1])
        yield from run.compute(changed[:1])
    for length in (most // 32, most // 3, 2 * most // 3):
        if length > 1:
            yield from life(run, length, 1 + run.below(length - 1))
            for _ in range(2):
                yield from _transfer(run, length)
    yield from run.compute([TokenChain(run.tokens(most))])
    limit = run.model.profile.max_tokens
    if not limit or most < limit:
        # The pool is too small for these.
        for further in (1, unit, most):
            if not limit or most + further <= limit:
                yield run.admit(TokenChain(run.tokens(most + unit + further)))
                yield from run.end_all()


_MOST_BLOCKS_ROUND = 64


def every_length(run: ManagerScript) -> Iterator[Command]:
    """Two sequences grow by a block at a time, through every number of blocks, full or one over."""
    unit = run.unit
    most = run.most_tokens // 2 - unit
    if goes_round(run.model, most):
        # Two tokens at once would overwrite what the first reads, and one by one takes long.
        most = min(most, _MOST_BLOCKS_ROUND * unit)
    yield run.admit(TokenChain(run.tokens(unit)))
    yield run.admit(TokenChain(run.tokens(1)))
    yield Step()
    while (running := run.running()) and min(s.num_tokens for s in running) + unit <= most:
        before = [s.num_tokens for s in running]
        for sequence in running:
            count = 1 if goes_round(run.model, sequence.num_tokens + unit) else unit
            yield AppendTokens(sequence.seq_id, run.tokens(count))
        yield Step()
        if before == [s.num_tokens for s in running]:
            break  # a target that need not find room put them off
    chains = [sequence.chain for sequence in run.running()]
    yield from run.end_all()
    yield from run.compute(chains)


def life(run: ManagerScript, length: int, cut: int) -> Iterator[Command]:
    """A sequence of `length` tokens forks, grows, drafts, is cut to `cut`, and comes back."""
    unit = run.unit
    chain = TokenChain(run.tokens(length))
    parent, child = run.admit(chain), run.new_id()
    yield parent
    yield Step()
    yield Fork(parent.seq_id, child)
    for seq_id in (child, parent.seq_id):
        yield AppendTokens(seq_id, run.tokens(1))
        yield Step()
    # Over the ends of several blocks at once; the drafts end far behind what is accepted.
    for count in (unit + 1, length // 4 + 1):
        yield AppendTokens(parent.seq_id, run.tokens(count))
        yield Step()
    for drafts, accepted in ((unit + 2, 1 + run.below(unit)), (70, 70 - run.below(4)), (70, 0)):
        yield AppendTokens(parent.seq_id, run.tokens(1))
        yield Draft(parent.seq_id, run.tokens(drafts))
        yield Step()
        yield Accept(parent.seq_id, accepted)
    yield AppendTokens(parent.seq_id, run.tokens(1))
    yield Step()
    yield from _look_up(run, parent.seq_id)
    yield Preempt(child)
    yield Resume(child, 0)
    yield Step()
    yield Truncate(parent.seq_id, cut)
    for count in (1, unit):
        yield AppendTokens(parent.seq_id, run.tokens(count))
        yield Step()
    # What was cut off, and what stands in its place.
    yield LookupPrefix(chain)
    yield from _look_up(run, parent.seq_id)
    yield Finish(child)
    yield from run.compute([chain])
    yield from run.end_all()


def _look_up(run: ManagerScript, seq_id: int) -> Iterator[Command]:
    """Look up what a sequence has computed by now, if it is alive."""
    if seq_id in run.sequences:
        yield LookupPrefix(run.sequences[seq_id].chain)


def _grow(run: ManagerScript, count: int) -> Iterator[Command]:
    for _ in range(count):
        for sequence in run.running():
            yield AppendTokens(sequence.seq_id, run.tokens(1))
        yield Step()


def _places(run: ManagerScript, length: int) -> list[int]:
    """Where a prompt is changed: next to powers of two that shorter ones have not reached."""
    upper = length // 2 + run.below(length - length // 2)
    places = {0, upper, length - 2 * run.unit, length - 1 - run.below(run.unit)}
    power = 64
    while power <= length:
        places |= {power - 1, power} if 2 * power > length else set()
        power *= 2
    return sorted(place for place in places if 0 <= place < length)


def _with_other_token(run: ManagerScript, tokens: Sequence[int], place: int) -> TokenChain:
    """The prompt up to some tokens after the changed one."""
    other = (tokens[place] + 1 + run.below(1000)) % (LARGEST_TOKEN + 1)
    return TokenChain((*tokens[:place], other, *tokens[place + 1 : place + 3 * run.unit]))


def without_cache(run: ManagerScript) -> Iterator[Command]:
    """Long sequences of a manager that caches nothing; after each, all room is free again."""
    most = run.most_tokens
    for length in (most // 32, most // 3, 2 * most // 3):
        if length > 1:
            yield from life(run, length, 1 + run.below(length - 1))
            yield from run.compute([TokenChain(run.tokens(most))])


def chunks(run: ManagerScript) -> Iterator[Command]:
    """Long prompts computed in chunks, together with sequences that decode, and images."""
    unit = run.unit
    length = min(run.most_tokens // 2, 300 * unit)
    for size in (length // 3, 2 * unit, unit + 1):
        image = Image(f"image of {length // 2}", unit // 2, length // 2)
        for chain in (
            TokenChain(run.tokens(length)),
            TokenChain(run.tokens(length), images=(image,)),
        ):
            command = run.admit(chain, size)
            yield command
            yield Step()
            while (sequence := run.sequences.get(command.seq_id)) is not None:
                computed = sequence.num_computed
                left = sequence.num_tokens - computed
                if not left or sequence.num_scheduled:
                    break
                yield Schedule(command.seq_id, min(left, size))
                yield Step()
                if sequence.num_computed == computed:
                    break  # put off
            yield LookupPrefix(chain)
        yield from run.end_all(backwards=True)


def many_sequences(run: ManagerScript) -> Iterator[Command]:
    """Hundreds of sequences at once, which decode, end in another order, and come again."""
    count = run.sizes.num_sequences
    if run.model.profile.max_sequences:
        count = min(count, run.model.profile.max_sequences)
    common = run.tokens(run.unit)
    for turn in range(2):
        for number in range(count):
            own = run.tokens(1 + (number + turn) % run.unit)
            yield run.admit(TokenChain((*common, *own) if number % 3 else own))
        if len(run.sequences) == count:
            run.facts.add(MANY_SEQUENCES)
        yield Step()
        yield from _grow(run, 3)
        ended = [seq_id for seq_id in run.sequences if run.below(3)]
        for seq_id in ended:
            yield Finish(seq_id)
        yield from _grow(run, 2)
        for _ in ended:
            yield run.admit(TokenChain((*common, *run.tokens(1 + run.below(2 * run.unit)))))
        yield from run.end_all(backwards=bool(turn))
    yield from run.compute([TokenChain(run.tokens(run.most_tokens))])


def many_references(run: ManagerScript) -> Iterator[Command]:
    """One block that hundreds of sequences hold: forks of one, or a prompt that all begin with."""
    count = run.sizes.num_references
    if run.model.profile.max_sequences:
        count = min(count, run.model.profile.max_sequences)
    # Where a step leaves one state, at its end, that has to be where all the others begin.
    leaves_one = run.model.profile.states == "step-end" and has_state(run.model.groups)
    in_two = leaves_one and "schedule" in run.can.verbs
    proof = run.model.profile.proof_blocks * run.unit if in_two else 0
    tokens = run.tokens(2 * run.unit + proof + 1)
    parent = run.admit(TokenChain(tokens), 2 * run.unit if in_two else 0)
    yield parent
    yield Step()
    if in_two:
        yield Schedule(parent.seq_id, proof + 1)
        yield Step()
    if "fork" in run.can.verbs:
        # Children of one, and now and then a child of the latest.
        latest = parent.seq_id
        for number in range(count - 1):
            child, is_deeper = run.new_id(), number % 4 == 0
            yield Fork(latest if is_deeper else parent.seq_id, child)
            latest = child if is_deeper else latest
    else:
        num_more = count - 1
        if run.model.profile.publishes == "finish":
            yield Finish(parent.seq_id)  # before that nobody finds its blocks
            num_more = count
        for _ in range(num_more):
            yield run.admit(TokenChain((*parent.chain.tokens[:-1], *run.tokens(1))))
    holders = run.model.pool.holders.values()
    if max(map(len, holders)) >= count:
        run.facts.add(MANY_REFERENCES)
    yield Step()
    for sequence in run.running()[:: max(1, count // 64)]:
        yield AppendTokens(sequence.seq_id, run.tokens(1))
    yield Step()
    # Those that came first go first, and one is left: what it reads has to be there still.
    *others, last = list(run.sequences)
    for seq_id in others:
        yield Finish(seq_id)
    # Whoever needs blocks now takes all that are free.
    free = len(run.model.pool.free) - run.model.profile.watermark_blocks
    room = (free // len(run.model.groups) - 2) * min(run.model.block_sizes)
    yield from _grow(run, 1)
    yield run.admit(TokenChain(run.tokens(max(1, min(room, run.most_tokens)))))
    yield Step()
    yield Finish(last)


def refusals(run: ManagerScript) -> Iterator[Command]:
    """One refusal hundreds of times, of every kind; then there is as much room as before."""
    unit, most = run.unit, run.most_tokens
    rows: list[Admit] = []
    # Some take all room, so that nothing fits.
    while len(rows) < 40:
        room = _room(run)
        if room < 1 or run.model.has_no_row():
            break
        command = run.admit(TokenChain(run.tokens(min(most // 8 + 1, room))))
        yield command
        if command.seq_id not in run.sequences:
            break
        rows.append(command)
        yield Step()
    waiting = run.admit(TokenChain(run.tokens(most // 2)))
    refused = 0
    for number in range(run.sizes.num_repeats):
        again = number % 8 and waiting.seq_id not in run.sequences
        command = waiting if again else run.admit(TokenChain(run.tokens(2 * unit + number % unit)))
        yield command
        refused += command.seq_id not in run.sequences
        for sequence in run.running()[:2]:
            yield AppendTokens(sequence.seq_id, run.tokens(unit))
        if rows and number % 64 == 0:
            # Seldom: a fork that is granted takes a row, and what is asked for are blocks.
            yield Fork(rows[0].seq_id, run.new_id())
        yield LookupPrefix(waiting.chain)
        yield Reset()
        if number % 16 == 0:
            yield Step()
            yield Abort(run.new_id())
    if refused >= run.sizes.num_repeats // 2:
        run.facts.add(MANY_REFUSALS)
    # Those that were refused grow on as if nothing had been.
    if len(rows) > 2:
        yield Finish(rows[2].seq_id)
        yield from _grow(run, 2)
        yield from _short_of_room(run)
        for seq_id in list(run.sequences):
            yield from _look_up(run, seq_id)
    yield from run.end_all()
    yield from _short_because_of_hits(run)
    yield Reset()
    yield from run.compute([TokenChain(run.tokens(most))])
    for row in rows:
        yield run.admit(TokenChain(run.tokens(len(row.chain.tokens))))
    yield from run.end_all()
    # A refusal may have cost a row, of which there are as many as blocks, or as are declared.
    for _ in range(run.num_usable // len(run.model.groups)):
        if not run.model.has_no_row():
            yield run.admit(TokenChain(run.tokens(1)))
    yield from run.end_all(backwards=True)


def duplicates(run: ManagerScript) -> Iterator[Command]:
    """One prompt that many sequences compute in one step; the copy of one of them is the last."""
    chain = TokenChain(run.tokens(run.unit + 1))
    for count in (3, 5, 9, 17, 33, 65, 129, 257):
        for kept in (0, -1, count // 2):
            admitted = [run.admit(chain) for _ in range(count)]
            yield from admitted
            yield Step()
            for command in admitted:
                if command.seq_id != admitted[kept].seq_id:
                    yield Finish(command.seq_id)
            filling = run.admit(TokenChain(run.tokens(max(1, _room(run)))))
            yield filling
            yield Step()
            yield Finish(filling.seq_id)
            yield from _look_up(run, admitted[kept].seq_id)
            yield LookupPrefix(chain)
            yield from run.end_all()
            yield Reset()


def _room(run: ManagerScript) -> int:
    """So many tokens have blocks that are free."""
    left = len(run.model.pool.free) - run.model.profile.watermark_blocks
    return max(0, left // len(run.model.groups) * min(run.model.block_sizes))


def _short_of_room(run: ManagerScript) -> Iterator[Command]:
    """Growth by more blocks than are free, by one or by many; then by what fits."""
    for sequence in run.running()[:2]:
        for more in (run.unit, 2 * run.unit, 17 * run.unit):
            yield AppendTokens(sequence.seq_id, run.tokens(_room(run) + more))
            yield AppendTokens(sequence.seq_id, run.tokens(run.unit + 1))
            yield Draft(sequence.seq_id, run.tokens(_room(run) + more))
            yield Step()


def _short_because_of_hits(run: ManagerScript) -> Iterator[Command]:
    """Cached blocks that nobody holds are no room for what comes behind them."""
    unit = run.unit
    for blocks in (2, 8, 40, 100):
        chain = TokenChain(run.tokens(blocks * unit + 1))
        left = _room(run) - (blocks + 4) * unit
        if left < len(chain.tokens):
            break
        yield from run.compute([chain])
        yield run.admit(TokenChain(run.tokens(left)))
        yield Step()
        for more in (8 * unit, 4 * unit, 2 * unit):
            yield run.admit(TokenChain((*chain.tokens, *run.tokens(more))))
        yield from run.end_all()


def preemptions(run: ManagerScript) -> Iterator[Command]:
    """Hundreds of preemptions, swaps, cuts, drafts and transfers in the life of a few sequences."""
    unit = run.unit
    length = max(1, min(run.most_tokens // 6, 10 * unit))
    for _ in range(3):
        yield run.admit(TokenChain(run.tokens(length + run.below(unit))))
    yield Step()
    for number in range(run.sizes.num_repeats):
        sequences = list(run.sequences.values())
        if not sequences:
            break
        sequence = sequences[number % len(sequences)]
        seq_id = sequence.seq_id
        if number == run.sizes.num_repeats - 1 and "preempt" in run.can.verbs:
            run.facts.add(MANY_PREEMPTIONS)
        yield Preempt(seq_id)
        yield Resume(seq_id, 0)
        yield Step()
        yield AppendTokens(seq_id, run.tokens(1))
        yield Draft(seq_id, run.tokens(1 + number % unit))
        yield Step()
        if sequence.drafts_computed:
            yield Accept(seq_id, run.below(sequence.num_drafts + 1))
        if sequence.num_tokens > length:
            yield Truncate(seq_id, length - number % unit)
        yield SwapOut(seq_id)
        yield SwapIn(seq_id)
        if number % 4 == 0:
            yield from _transfer(run, length)
        if sequence.num_tokens > 2 * length:
            yield Step()
            yield Finish(seq_id)
            yield run.admit(TokenChain(run.tokens(length)))
            yield Step()
    yield from run.end_all()
    yield from run.compute([TokenChain(run.tokens(run.most_tokens))])


def comes_back(run: ManagerScript) -> Iterator[Command]:
    """Sequences are preempted and come back after 1, 2, 4, ... others had their blocks."""
    unit = run.unit
    for bit in range(run.sizes.num_repeats.bit_length() + 1):
        prompt = TokenChain(run.tokens(unit + 1))
        admitted = run.admit(prompt)
        yield admitted
        yield Step()
        yield Preempt(admitted.seq_id)
        for _ in range(2**bit):
            other = run.admit(TokenChain(run.tokens(unit + 1)))
            yield other
            yield Step()
            yield Finish(other.seq_id)
        yield Resume(admitted.seq_id, 0)
        yield from run.end_all()


def resets(run: ManagerScript) -> Iterator[Command]:
    """The cache is emptied hundreds of times: what was computed before is found never again.

    Asked for is what the last reset has emptied, and what was computed 1, 2, 4, ... resets ago.
    """
    count = run.sizes.num_repeats
    again = TokenChain(run.tokens(run.unit + 1))
    kept = [TokenChain(run.tokens(run.unit + 1)) for _ in range(count.bit_length())]
    yield from run.cache(kept)
    for number in range(1, count + 1):
        yield from run.cache([again])
        yield Reset()
        if number & (number - 1) == 0:
            yield from run.ask([kept[number.bit_length() - 1]])


def forks(run: ManagerScript) -> Iterator[Command]:
    """Children of sequences with several other keys: they have all that their parents had."""
    unit = run.unit
    if unit < 3:
        return
    tokens = run.tokens(unit)
    images = Image("x", 0, 1), Image("y", 1, 1)
    whole = TokenChain(tokens, ("adapter", "path"), "salt", images)
    less = [
        replace(whole, lora=None),
        replace(whole, salt=None),
        replace(whole, images=images[:1]),
        replace(whole, images=images[1:]),
    ]
    for missing in less:
        yield Reset()
        parent, child = run.admit(replace(whole, tokens=tokens[:2])), run.new_id()
        yield parent
        yield Step()
        yield Fork(parent.seq_id, child)
        yield AppendTokens(child, tokens[2:])
        yield Step()
        yield from run.end_all()
        yield from run.compute([replace(missing, tokens=(*tokens, 1))])


def _transfer(run: ManagerScript, length: int) -> Iterator[Command]:
    """A sequence whose KV comes from elsewhere; every second is ended before it is there."""
    seq_id = run.new_id()
    if length < 2:
        return
    yield Load(seq_id, TokenChain(run.tokens(length)), length - 1)
    if seq_id not in run.sequences:
        return
    if seq_id % 2:
        yield Abort(seq_id)
    yield Loaded(seq_id)
    yield Step()
    if seq_id in run.sequences:
        yield Finish(seq_id)


def row_width(run: ManagerScript) -> Iterator[Command]:
    """Sequences that grow exactly to the width of a row, beside others that are read again."""
    width = run.model.profile.max_tokens
    if not width or run.most_tokens < width:
        return
    num_rows = max(1, min(3, run.num_usable // len(run.model.groups) * run.unit // width - 1))
    for ahead in (0, 1, 2, run.unit, run.unit + 1):
        if ahead >= width:
            continue
        for _ in range(num_rows):
            yield run.admit(TokenChain(run.tokens(width - ahead)))
        short = run.admit(TokenChain(run.tokens(run.unit + 1)))
        yield short
        yield Step()
        while any(s.num_tokens < width for s in run.running() if s.seq_id != short.seq_id):
            before = sum(s.num_tokens for s in run.sequences.values())
            for sequence in run.running():
                left = width - sequence.num_tokens
                if left:
                    yield AppendTokens(sequence.seq_id, run.tokens(1))
                if left > 1:
                    yield Draft(sequence.seq_id, run.tokens(left - 1))
            yield Step()
            for sequence in list(run.sequences.values()):
                if sequence.drafts_computed:
                    yield Accept(sequence.seq_id, sequence.num_drafts // 2)
            if before == sum(s.num_tokens for s in run.sequences.values()):
                break
        if any(s.num_tokens == width for s in run.sequences.values()):
            run.facts.add(FULL_ROW)
        yield Step()
        yield from run.end_all()


def churn(run: ManagerScript) -> Iterator[Command]:
    """Arrivals, growth and endings as on a busy server: prompts of all lengths, many shared."""
    earlier = [run.tokens(run.unit)]
    longest = max(1, run.most_tokens // 8)
    for _ in range(run.sizes.num_commands // 8):
        kind = run.below(16)
        running = run.running()
        if kind < 6 and not run.model.has_no_row():
            tokens = earlier[run.below(len(earlier))]
            kept = tokens[: 1 + run.below(len(tokens))]
            more = 1 + run.below(1 << run.below(longest.bit_length()))
            tokens = (*kept, *run.tokens(more))[:longest]
            earlier = [*earlier[-30:], tokens]
            yield run.admit(TokenChain(tokens))
        elif kind < 9 or not running:
            yield Step()
        else:
            sequence = running[run.below(len(running))]
            if kind < 13:
                if sequence.num_tokens < run.most_tokens:
                    yield AppendTokens(sequence.seq_id, run.tokens(1))
            elif kind == 13:
                yield Preempt(sequence.seq_id)
                yield Resume(sequence.seq_id, 0)
            elif kind == 14 and not run.model.has_no_row():
                yield Fork(sequence.seq_id, run.new_id())
            else:
                earlier.append(sequence.tokens[:longest])
                yield Finish(sequence.seq_id)
    yield from run.end_all()


def long_run(run: ManagerScript) -> Iterator[Command]:
    """The usual commands in a small pool, thousands of them in one run."""
    workload = ManagerWorkload(run.choices, run.model, run.can)
    for number in range(run.sizes.num_commands):
        if number % 16 == 0:
            workload.bias()
        yield workload.next()
    run.facts.add(LONG_RUN)
    while (command := workload.drain()) is not None:
        yield command


@dataclass(frozen=True, slots=True)
class Plan:
    """A script, the pool that it needs, so many blocks for each group, and what it must reach."""

    script: Script
    num_blocks: Callable[[ManagerSizes], int]
    facts: Callable[[ManagerProfile, Capabilities], tuple[str, ...]] = lambda *_: ()
    is_for: Callable[[ManagerProfile], bool] = lambda _: True
    enable_caching: bool = True


def _has_cache(profile: ManagerProfile) -> bool:
    return profile.publishes != "never"


def _has_full_group(profile: ManagerProfile) -> bool:
    """What slides out of a window leaves room, and is not shared for long."""
    return any(group.is_full for group in profile.groups)


def _if(
    condition: Callable[[ManagerProfile, Capabilities], bool], fact: str
) -> Callable[[ManagerProfile, Capabilities], tuple[str, ...]]:
    return lambda profile, can: (fact,) * condition(profile, can)


def _always(_: ManagerProfile, __: Capabilities) -> bool:
    return True


_CONFUSED = _if(_always, CONFUSED)

SCRIPTS: dict[str, Plan] = {
    "token values": Plan(token_values, lambda _: 1_024, _CONFUSED, _has_cache),
    "long prompts": Plan(
        long_prompts,
        lambda sizes: sizes.num_blocks // 4,
        # A row may be too narrow for one; then sequences reach its width instead.
        _if(lambda profile, _: not profile.max_tokens, LONG_PROMPT),
    ),
    "many sequences": Plan(
        many_sequences,
        lambda sizes: 4 * sizes.num_sequences + 1,
        _if(lambda profile, _: not profile.max_sequences, MANY_SEQUENCES),
    ),
    "refusals": Plan(
        refusals, lambda _: 255, _if(lambda profile, _: _has_full_group(profile), MANY_REFUSALS)
    ),
    "many references": Plan(
        many_references,
        lambda sizes: 2 * sizes.num_references + 65,
        _if(
            lambda profile, can: (
                _has_full_group(profile)
                and not profile.max_sequences
                and profile.held_blocks == "shared"
                and (_has_cache(profile) or "fork" in can.verbs)
            ),
            MANY_REFERENCES,
        ),
    ),
    "parents": Plan(parents, lambda _: 1_023, _CONFUSED, _has_cache),
    "depths": Plan(depths, lambda sizes: sizes.num_blocks, is_for=_has_cache),
    "duplicates": Plan(duplicates, lambda _: 600, is_for=_has_cache),
    "without a cache": Plan(
        without_cache, lambda sizes: sizes.num_blocks // 4, enable_caching=False
    ),
    "every length": Plan(every_length, lambda sizes: sizes.num_blocks // 2),
    "row width": Plan(
        row_width,
        lambda sizes: sizes.num_blocks,
        _if(_always, FULL_ROW),
        lambda profile: bool(profile.max_tokens),
    ),
    "preemptions": Plan(
        preemptions, lambda _: 96, _if(lambda _, can: "preempt" in can.verbs, MANY_PREEMPTIONS)
    ),
    # So few that each of the others has the blocks of the one that comes back.
    "comes back": Plan(comes_back, lambda _: 2, is_for=_has_cache),
    "resets": Plan(resets, lambda sizes: 3 * sizes.num_repeats, is_for=_has_cache),
    "forks": Plan(forks, lambda _: 64, is_for=_has_cache),
    "bases": Plan(bases, lambda sizes: 4 * sizes.num_giant_steps + 128, is_for=_has_cache),
    "extra keys": Plan(extra_keys, lambda _: 512, _CONFUSED, _has_cache),
    "long run": Plan(long_run, lambda _: 9, _if(_always, LONG_RUN)),
    "many prompts": Plan(many_prompts, lambda sizes: 4 * sizes.num_prompts, is_for=_has_cache),
    "short parents": Plan(short_parents, lambda sizes: 4 * sizes.num_prompts, is_for=_has_cache),
    "chunks": Plan(chunks, lambda _: 1_400),
    "churn": Plan(churn, lambda sizes: sizes.num_blocks),
    # Enough for one prompt in blocks of 4 tokens.
    "far tokens": Plan(
        far_tokens,
        lambda sizes: sizes.num_far_tokens and sizes.num_far_tokens // 4 + 64,
        is_for=_has_cache,
    ),
}
"""By name, those that find most of what is known first."""


def required_script_facts(
    profile: ManagerProfile, can: Capabilities, sizes: ManagerSizes
) -> list[str]:
    """The facts that runs of these sizes must reach under this profile."""
    found = [SCRIPTS[name].facts(profile, can) for name in sizes.scripts_for(profile)]
    return list(dict.fromkeys(fact for facts in found for fact in facts))

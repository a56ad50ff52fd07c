"""The users and the worker of an engine, to be written into a test that stands for itself.

This is source before it is code: `engine_test.py` copies `Played` and `Play` into a file and
leaves out what a trace does not need. A comment `#: words` at the end of a line says when the line
is needed, together with the block that it begins: `drafts&ahead` where both are, `LIVE|LEAK` where
one is, `!ahead` where it is not. The words are the features and the invariants of `engine_test.py`.
Read as a module, with all of its lines, it is a whole player; tests drive it so.

It says again, in a few plain lines, what `reference/engine_model.py`, `reference/step_oracle.py`
and `invariants/` say: whoever gets the file has none of these.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Play", "Played"]

# The constants that stand at the top of a written file, with the trace's own values.
NAMES: dict[int, str] = {}
GROUPS: list[tuple[str, int, int]] = [("full", 4, 0)]
NUM_BLOCKS = 8
NUM_USABLE = 7
NULL_BLOCK: int | None = None
MAX_BATCH_TOKENS = 64
MAX_RUNNING = 8
MAX_REQUEST_TOKENS = 0
DRAFT_TOKENS = 0
MAX_ADAPTERS = 0
ENCODER_CACHE_TOKENS = 0
MAX_ENCODER_TOKENS = 0
STATES_IN_BETWEEN = True
STOP_TOKEN = 0


class Played:
    """A request: its prompt and what its user was given since."""

    def __init__(self, number: int, tokens: list[int], max_new_tokens: int, keys: Any) -> None:
        self.name = NAMES.get(number, str(number))
        self.tokens = list(tokens)
        self.most_tokens = len(tokens) + max_new_tokens
        self.is_live = True
        self.keys = keys or ()  #: keys
        self.drafts: list[int] = []  #: drafts
        self.num_sampled = len(tokens)  # what the worker has  #: drafts&ahead

    def prefix(self, group: int, tokens: list[Any]) -> tuple[Any, ...]:  #: DATA
        """All that the KV of the last of these tokens depends on."""
        keys = tuple(key for key in self.keys if key[2] < len(tokens))  #: keys
        return (group, tuple(tokens), keys)  #: keys
        return (group, tuple(tokens))  #: !keys


class Play:
    """The users of an engine, and its worker: `memory` is what it has computed, and for whom."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.requests: dict[int, Played] = {}
        self.steps: list[dict[str, Any]] = []  # planned, and not answered yet
        # Of each block, what stands in which slot: a prefix, and whose it was.  #: DATA
        # States have slots of their own: a part, and how far behind the first.  #: DATA&states
        self.memory: dict[int, dict[Any, tuple[Any, str]]] = {}  #: DATA
        self.places: dict[int, dict[Any, tuple[Any, str]]] = {}  # outside the device  #: DATA&moves
        self.transfers: dict[int, Any] = {}  # in flight  #: moves
        self.ended: list[tuple[int, bool]] = []  # transfers, and whether they were done  #: repeats
        self.encoded: set[str] = set()  # images that the worker has encoded  #: PLAN&images
        self.image_sizes: dict[str, int] = {}  #: PLAN&images
        self.num_quiet = 0  # plans since anybody was given a token  #: LIVE|LEAK

    def submit(
        self,
        number: int,
        tokens: list[int],
        max_new_tokens: int,
        priority: int = 0,
        extra_keys: Any = None,
    ) -> None:
        """A request comes."""
        self.engine.submit(
            number,
            list(tokens),
            max_new_tokens=max_new_tokens,
            priority=priority,
            extra_keys=extra_keys,
        )
        self.requests[number] = Played(number, tokens, max_new_tokens, extra_keys)
        for _, image, first, end in self.images_of(number):  #: PLAN&images
            self.image_sizes[image] = end - first

    def cancel(self, number: int) -> None:  #: cancels
        """Its user has gone, unless it has ended."""
        if self.requests[number].is_live:
            self.engine.cancel(number)
            self.requests[number].is_live = False

    def reset(self) -> None:  #: resets
        """What was cached is void if the engine says so: the weights may be others now."""
        is_void = self.engine.reset() is True
        if is_void:  #: DATA
            self.memory = {block: {} for block in self.memory}  # not zero  #: states
            self.memory.clear()  #: !states
            self.places.clear()  #: moves
        for step in self.steps if is_void else ():  #: ahead
            step["is_void"] = True
            # Nobody has a block any more, and what is in flight may be dropped.  #: preempts
            step["preempted"] |= set(self.requests)  #: preempts
            step["reset"] = set(self.requests)  #: preempts

    def arrive(self, place: int, *, is_lost: bool = False, num_moved: int = 0) -> None:  #: moves
        """The transfer with that place in the order of their beginning is over, or was lost."""
        if place < len(self.transfers):
            transfer = self.transfers.pop(list(self.transfers)[place])
            moved = transfer["blocks"][:num_moved] if is_lost else transfer["blocks"]  #: DATA
            self.move({**transfer, "blocks": moved})  #: DATA
            self.ended.append((transfer["id"], not is_lost))  #: repeats
            self.engine.arrived(transfer["id"], not is_lost)

    def repeat(self, before_last: int) -> None:  #: repeats
        """The engine is told again of the transfer that ended so many before the last."""
        if before_last < len(self.ended):
            transfer_id, is_done = self.ended[-1 - before_last]
            self.engine.arrived(transfer_id, is_done)

    def move(self, transfer: Any) -> None:  #: DATA&moves
        """A load brings what stands at places into blocks, a store the other way round."""
        for block, place in zip(transfer["blocks"], transfer["places"]):
            if transfer["kind"] == "load":
                self.memory[block] = dict(self.places.get(place, {}))
            else:
                self.places[place] = dict(self.memory.get(block, {}))

    def run(self, token: int, accepted: int = 0, drafts: int = 0) -> None:
        """A step is planned, and the oldest in flight is answered."""
        self.plan()
        self.answer(token, accepted, drafts)

    def plan(self) -> None:
        """The engine decides on its next step."""
        plan = self.engine.plan()
        self.num_quiet += 1  #: LIVE|LEAK
        for number in plan.get("preempted") or ():  #: ahead
            for step in self.steps:
                step["preempted"].add(number)
        self.check_form(plan)  #: CRASH
        self.check_plan(plan)  #: PLAN
        self.check_adapters(plan)  #: PLAN&adapters
        self.check_images(plan)  #: PLAN&images
        # `known`: tokens of each request, were all drafts in flight accepted.  #: ahead
        # `sampling`: how many they are afterwards.  #: ahead
        step = {"plan": plan, "known": {}, "sampling": {}, "preempted": set()}  #: ahead
        step = {"plan": plan}  #: !ahead
        for part in plan["compute"]:  #: ahead
            number, drafts = part["request"], part.get("drafts", 0)
            step["known"][number] = known = self.num_known(number)
            if part["first"] + part["count"] == known + drafts:
                step["sampling"][number] = known + drafts + 1
            if part.get("discards"):  #: instances
                step["sampling"].pop(number, None)
        self.steps.append(step)
        self.begin(plan, follows=False)  #: moves

    def begin(self, plan: Any, *, follows: bool) -> None:  #: moves
        """The transfers of a step that it does not wait for are in flight."""
        for transfer in plan.get("transfers") or ():
            if not transfer.get("waits") and bool(transfer.get("follows")) == follows:
                self.transfers[transfer["id"]] = transfer

    def flush(self, plan: Any) -> None:  #: moves
        """What the worker waits for before it computes a step ends now."""
        for transfer_id in plan.get("flushes") or ():
            if transfer_id in self.transfers:
                self.arrive(list(self.transfers).index(transfer_id))

    def num_known(self, number: int) -> int:  #: ahead|PLAN
        """How many tokens a request has once all steps in flight are answered."""
        for step in reversed(self.steps):  #: ahead
            if number in step["sampling"] and number not in step["preempted"]:
                num_tokens: int = step["sampling"][number]
                return num_tokens
        return len(self.requests[number].tokens)

    def answer(self, token: int, accepted: int = 0, drafts: int = 0) -> None:
        """The oldest step is carried out; each request that comes to its end samples a token."""
        if not self.steps:
            return
        step = self.steps.pop(0)
        plan = step["plan"]
        self.flush(plan)  #: moves
        for block in plan.get("zeroes") or ():  #: DATA&states
            self.memory.pop(block, None)
        self.copy(plan.get("copies") or ())  #: DATA&copies
        self.move_now(plan, "load")  #: DATA&moves
        work = [self.work_on(part, step) for part in plan["compute"]]
        states = self.states_of(work, accepted)  #: states
        self.start_states(work, states, step)  #: DATA&states
        for request, part, first, tokens, _ in work:  #: DATA
            self.write(request, part, first, tokens)
        self.leave_states(work, states, step)  #: DATA&states
        for request, part, first, tokens, _ in work:  #: DATA
            if self.is_forgotten(step, part):  #: resets&ahead
                continue  # nobody goes on from it
            if request.is_live:
                self.check_reads(request, part, first, tokens)
        self.copy_states(states, "after")  #: DATA&states
        self.move_now(plan, "store")  #: DATA&moves
        self.begin(plan, follows=True)  #: moves
        sampled: dict[int, list[int]] = {}
        due: dict[int, list[int]] = {}
        ends: dict[int, bool] = {}
        for request, part, _, _, samples in work:
            if not samples:
                continue
            number = part["request"]
            right = request.drafts[: part.get("drafts", 0)][:accepted]  #: drafts
            sampled[number] = [*right, token]  #: drafts
            sampled[number] = [token]  #: !drafts
            request.num_sampled += len(sampled[number])  #: drafts&ahead
            self.reject(step, number, part.get("drafts", 0) - len(right))  #: drafts&ahead
            if request.is_live:
                # Users get tokens up to the stop token, and up to their limit.
                got = sampled[number][: request.most_tokens - len(request.tokens)]
                got = got[: got.index(STOP_TOKEN) + 1] if STOP_TOKEN in got else got
                due[number] = got
                ends[number] = (
                    got[-1] == STOP_TOKEN or len(request.tokens) + len(got) == request.most_tokens
                )
        tries: dict[int, list[int]] = {}
        for number, got in due.items():  #: drafts
            if drafts and not ends[number]:
                known = [*self.requests[number].tokens, *got]
                tries[number] = self.drafts_after(known, min(drafts, DRAFT_TOKENS))
        given = self.engine.answer(sampled, tries) or []
        self.check_given(given, due, ends, step)  #: OUT
        gets = {number: list(tokens) for number, tokens, _ in given}
        if any(gets.values()):  #: LIVE|LEAK
            self.num_quiet = 0
        for part in plan["compute"]:
            number = part["request"]
            request = self.requests[number]
            request.tokens += gets.get(number, [])
            if not ends.get(number):  #: drafts&ahead
                request.num_sampled = len(request.tokens)
            if ends.get(number) and gets.get(number) == due[number]:
                request.is_live = False
            elif number in sampled:  #: drafts
                num_drafts = len(tries.get(number, ()))
                request.drafts = self.drafts_after(request.tokens, num_drafts)

    def work_on(self, part: Any, step: dict[str, Any]) -> tuple[Played, Any, int, list[Any], bool]:
        """What a part of a step computes: from where on, of which tokens, and if it samples."""
        request = self.requests[part["request"]]
        first = part["first"]
        # Drafts of the steps before that were counted and were not accepted.  #: drafts&ahead
        first -= max(0, step["known"][part["request"]] - request.num_sampled)  #: drafts&ahead
        end = first + part["count"]
        samples = part["request"] in step["sampling"]  #: ahead
        samples = end == len(request.tokens) + part.get("drafts", 0)  #: !ahead
        samples = samples and not part.get("discards")  #: instances
        tokens: list[Any] = [*request.tokens, *request.drafts[: part.get("drafts", 0)]]  #: drafts
        tokens = list(request.tokens)  #: !drafts
        # Of a request that has ended, or a draft that nobody gave, the token is nobody's.
        tokens = [*tokens[:end], *(object() for _ in range(end - len(tokens)))]
        if step.get("is_void"):  #: DATA&resets&ahead
            tokens = [object() for _ in tokens]  # of the weights before a reset
        return request, part, first, tokens, samples

    def reject(self, step: dict[str, Any], number: int, num_rejected: int) -> None:  #: drafts&ahead
        """So many drafts that were counted are none: later steps sample as much earlier."""
        if number not in step["preempted"]:
            for later in self.steps:
                if number in later["sampling"] and number not in later["preempted"]:
                    later["sampling"][number] -= num_rejected

    def drafts_after(self, known: list[int], count: int) -> list[int]:  #: drafts
        """What a request tries next: some tokens, and now and then the one that stops it."""
        tried = [1, 2, 3, 1, 2, 3, STOP_TOKEN]
        return [tried[(known[-1] + len(known) + ahead) % 7] for ahead in range(count)]

    def is_forgotten(self, step: dict[str, Any], part: Any) -> bool:  #: DATA&resets&ahead
        """Whether the cache was reset since, and the request had lost its blocks."""
        return "is_void" in step and part["request"] in step["preempted"]

    def copy(self, copies: Any) -> None:  #: DATA&copies
        """Blocks get what others hold, all at once."""
        held = [(into, dict(self.memory.get(source, {}))) for source, into in copies]
        self.memory.update(held)

    def move_now(self, plan: Any, kind: str) -> None:  #: DATA&moves
        """The transfers that the step waits for."""
        for transfer in plan.get("transfers") or ():
            if transfer.get("waits") and transfer["kind"] == kind:
                self.move(transfer)

    def write(self, request: Played, part: Any, first: int, tokens: list[Any]) -> None:  #: DATA
        """Each slot gets the KV of one prefix."""
        for group, (kind, size, _) in enumerate(GROUPS):
            if kind == "state":  #: states
                continue
            for position in range(first, len(tokens)):
                block = part["blocks"][group][position // size]
                content = request.prefix(group, tokens[: position + 1])
                slots = self.memory.setdefault(block, {})
                for place in [place for place in slots if isinstance(place, tuple)]:  #: states
                    del slots[place]
                slots[position % size] = (content, request.name)

    def states_of(self, work: list[Any], accepted: int) -> list[Any]:  #: states
        """What the step does with the recurrent states of each request."""
        sampled: dict[int, int] = {}  #: told
        for request, part, _, _, samples in work:  #: told
            right = 0
            right = len(request.drafts[: part.get("drafts", 0)][:accepted])  #: drafts
            sampled[part["request"]] = samples and 1 + right
        if hasattr(self.engine, "states"):  #: told
            told = dict(self.engine.states(sampled))
            return [told.get(part["request"], ()) for _, part, _, _, _ in work]
        return [part.get("states", ()) for _, part, _, _, _ in work]  #: told
        return [self.states_by_table(part, first) for _, part, first, _, _ in work]  #: !told

    def states_by_table(self, part: Any, first: int) -> list[Any]:  #: states&!told
        """The state after a position stands in the block of that position."""
        uses: list[Any] = []
        for group, (kind, size, _) in enumerate(GROUPS):
            table, end = part["blocks"][group], first + part["count"]
            if kind == "state":
                ends = [end]
                if STATES_IN_BETWEEN:
                    ends = [*range(first + size - first % size, end, size), end]
                leaves = [(until, table[(until - 1) // size]) for until in ends]
                starts = table[(first - 1) // size] if first else None
                uses.append({"group": group, "starts": starts, "leaves": leaves})
        return uses

    def parts(self, use: Any) -> list[str]:  #: DATA&states
        """The parts of a state that a use is about."""
        return [use["part"]] if use.get("part") else ["temporal", "window"]

    def place(self, place: Any) -> tuple[int, int]:  #: DATA&states
        """A block, and how many tokens behind the first state in it the state comes."""
        return (place, 0) if isinstance(place, int) else (place[0], place[1])

    def copy_states(self, states: list[Any], when: str) -> None:  #: DATA&states
        """A block gets what another holds, one copy after the other."""
        for use in (use for uses in states for use in uses):
            for source, into, *skip in use.get(when) or ():
                left_out = skip[0] if skip else 0
                for part in self.parts(use):
                    held = {
                        (part, at - left_out): found
                        for (kind, at), found in self.states_in(source).items()
                        if kind == part and at >= left_out
                    }
                    self.put_states(into, part, held)

    def states_in(self, block: int) -> dict[Any, Any]:  #: DATA&states
        """The states in a block: zero, as all memory is at first, or what was left there."""
        if block not in self.memory:
            return {("temporal", 0): ("zero", ""), ("window", 0): ("zero", "")}
        return {p: found for p, found in self.memory[block].items() if isinstance(p, tuple)}

    def put_states(self, block: int, part: str, held: dict[Any, Any]) -> None:  #: DATA&states
        """A block holds these states of a part, and no KV."""
        others = {
            place: found
            for place, found in self.memory.get(block, {}).items()
            if isinstance(place, tuple) and place[0] != part
        }
        self.memory[block] = {**others, **held}

    def start_states(  #: DATA&states
        self, work: list[Any], states: list[Any], step: dict[str, Any]
    ) -> None:
        """Each request starts from the state of exactly its own prefix."""
        self.copy_states(states, "before")
        for (request, part, first, tokens, _), uses in zip(work, states):
            if self.is_forgotten(step, part):  #: resets&ahead
                continue
            for use in uses if request.is_live else ():
                self.check_start(request, use, tokens[:first])

    def check_start(self, request: Played, use: Any, tokens: list[Any]) -> None:  #: DATA&states
        """The state at a place is that of these tokens: zero, if there are none."""
        wanted = request.prefix(use["group"], tokens) if tokens else "zero"
        for part in self.parts(use):
            found, writer = ("zero", "")
            if use.get("starts") is not None:
                block, at = self.place(use["starts"])
                found, writer = self.states_in(block).get((part, at), (None, ""))
            assert found == wanted, (
                f"request {request.name} starts at position {len(tokens)} from the {part} state at "
                f"{use.get('starts')}, {self.state_words(found)}"
                f"{f' left for request {writer}' if writer else ''}; wanted "
                f"{self.state_words(wanted)}"
            )

    def state_words(self, state: Any) -> str:  #: DATA&states
        """A state in words."""
        if state is None:
            return "which nobody has left there"
        return "zero" if state == "zero" else f"that of {self.words(state)}"

    def leave_states(  #: DATA&states
        self, work: list[Any], states: list[Any], step: dict[str, Any]
    ) -> None:
        """Each request leaves its states, from which no other may start in this step."""
        left: dict[tuple[int, str], Played] = {}
        for (request, _, _, tokens, _), uses in zip(work, states):
            for use in uses:
                for part in self.parts(use):
                    held: dict[int, dict[Any, Any]] = {}
                    for end, place in use.get("leaves") or ():
                        block, at = self.place(place)
                        content = request.prefix(use["group"], tokens[:end])
                        held.setdefault(block, {})[part, at] = (content, request.name)
                        left[block, part] = request
                    for block, found in held.items():
                        self.put_states(block, part, found)
        for (request, part, first, tokens, _), uses in zip(work, states):
            if self.is_forgotten(step, part):  #: resets&ahead
                continue
            for use in uses if request.is_live else ():
                if use.get("starts") is not None:
                    block, _ = self.place(use["starts"])
                    if any(left.get((block, p), request) is not request for p in self.parts(use)):
                        self.check_start(request, use, tokens[:first])

    def first_read(self, kind: str, window: int, position: int) -> int:  #: DATA|PLAN
        """The first position whose KV is read at a position."""
        if kind == "sliding":
            return max(0, position - window + 1)
        return position - position % window if kind == "chunked" else 0

    def check_reads(  #: DATA
        self, request: Played, part: Any, first: int, tokens: list[Any]
    ) -> None:
        """Each slot that is read holds the KV of exactly the reader's own prefix."""
        for group, (kind, size, window) in enumerate(GROUPS):
            if kind == "state":  #: states
                continue
            for position in range(self.first_read(kind, window, first), len(tokens)):
                block, slot = part["blocks"][group][position // size], position % size
                wanted = request.prefix(group, tokens[: position + 1])
                found, writer = self.memory.get(block, {}).get(slot, (None, ""))
                assert found == wanted, (
                    f"request {request.name} reads at position {position} (block {block}, slot "
                    f"{slot}) KV {self.origin(found, writer)}; wanted that of {self.words(wanted)}"
                )

    def origin(self, found: Any, writer: str) -> str:  #: DATA
        """Whose KV stands in a slot."""
        if found is None:
            return "that nobody has computed"
        return f"of {self.words(found)}, which was computed for request {writer}"

    def words(self, prefix: tuple[Any, ...]) -> str:  #: DATA
        """A prefix as a reader knows it."""
        tokens = " ".join(str(token) if isinstance(token, int) else "?" for token in prefix[1])
        keys = f" with {prefix[2]}" if prefix[2] else ""  #: keys
        return f"<{tokens}>{keys}"  #: keys
        return f"<{tokens}>"  #: !keys

    def check_given(  #: OUT
        self,
        given: Any,
        due: dict[int, list[int]],
        ends: dict[int, bool],
        step: dict[str, Any],
    ) -> None:
        """Each user is given what was sampled, in order, once, and nothing after the end."""
        numbers = [number for number, _, _ in given]
        assert len(set(numbers)) == len(numbers), f"a request is given tokens twice: {given}"
        gets = {number: (list(tokens), bool(ended)) for number, tokens, ended in given}
        for number in {**gets, **due}:
            name = NAMES.get(number, number)
            wanted = (due.get(number, []), ends.get(number, False))
            got = gets.get(number, ([], False))
            if got == ([], False) and number in step["preempted"]:  #: drops
                continue  # it is sampled again
            if got == ([], False) and number in step.get("reset", ()):  #: preempts&ahead
                continue  # it is sampled again
            assert got == wanted, (
                f"request {name} is given {got[0]} and {'ends' if got[1] else 'goes on'}; it was "
                f"to be given {wanted[0]} and to {'end' if wanted[1] else 'go on'}"
            )

    def check_plan(self, plan: Any) -> None:  #: PLAN
        """A step computes tokens that are known, within the limits, in blocks that exist."""
        parts = plan["compute"]
        total = sum(part["count"] for part in parts)
        assert total <= MAX_BATCH_TOKENS, f"the step computes {total} of {MAX_BATCH_TOKENS} tokens"
        assert len(parts) <= MAX_RUNNING, f"the step has {len(parts)} of {MAX_RUNNING} requests"
        numbers = [part["request"] for part in parts]
        assert len(set(numbers)) == len(numbers), f"the step computes a request twice: {numbers}"
        for part in parts:
            name = NAMES.get(part["request"], part["request"])
            assert part["request"] in self.requests, f"nobody submitted request {name}"
            assert self.requests[part["request"]].is_live, (
                f"the step computes tokens of request {name}, which has ended"
            )
            self.check_part(part, str(name))
        for number in plan.get("preempted") or ():
            name = NAMES.get(number, number)
            assert number in self.requests, f"request {name} is preempted, and nobody submitted it"
            assert number not in numbers, f"request {name} is preempted and computed in one step"
        moved = [block for pair in plan.get("copies") or () for block in pair]
        begun: set[int] = set()  #: moves
        for transfer in plan.get("transfers") or ():  #: moves
            number = transfer["id"]
            assert number not in {*begun, *self.transfers}, (
                f"transfer {number} is in flight already"
            )
            begun.add(number)
            moved += transfer["blocks"]
        for block in moved:
            assert 0 <= block < NUM_BLOCKS, f"the step moves block {block} of {NUM_BLOCKS}"

    def check_form(self, plan: Any) -> None:  #: CRASH
        """An answer is of the form that the contract has. Raises ValueError."""
        for part in plan["compute"]:
            if not all(isinstance(part[key], int) for key in ("request", "first", "count")):
                raise ValueError(f"{part} is no part of a step")
        for transfer in plan.get("transfers") or ():
            blocks, places = len(transfer["blocks"]), len(transfer["places"])
            if blocks != places:
                number = transfer["id"]
                raise ValueError(f"transfer {number} moves {blocks} blocks and has {places} places")

    def check_part(self, part: Any, name: str) -> None:  #: PLAN
        """What a step computes of one request."""
        first, count, drafts = part["first"], part["count"], part.get("drafts", 0)
        end, known = first + count, self.num_known(part["request"])
        assert count >= 1, f"the step computes nothing of request {name}: its count is {count}"
        assert first >= 0, f"the step computes request {name} from position {first} on"
        assert 0 <= drafts <= count, (
            f"{drafts} of the positions that the step computes of request {name} are said to be "
            f"drafts, of {count} in all"
        )
        assert not 0 < MAX_REQUEST_TOKENS < end, (
            f"the step computes position {end - 1} of request {name} of {MAX_REQUEST_TOKENS}"
        )
        assert drafts <= DRAFT_TOKENS, (
            f"the step tries {drafts} drafts of request {name}, of {DRAFT_TOKENS} at most"
        )
        assert end <= known + drafts, (
            f"the step computes position {end - 1} of request {name}, which has {known} tokens by "
            f"then, and {drafts} drafts"
        )
        assert not drafts or end == known + drafts, (
            f"the step tries drafts of request {name} before all of its {known} tokens are computed"
        )
        assert len(part["blocks"]) == len(GROUPS), (
            f"request {name} has {len(part['blocks'])} block tables of {len(GROUPS)}"
        )
        for table, (kind, size, window) in zip(part["blocks"], GROUPS):
            if kind == "state":  #: states
                continue
            for entry in range(self.first_read(kind, window, first) // size, -(-end // size)):
                block = table[entry] if entry < len(table) else None
                assert block in range(NUM_BLOCKS) and block != NULL_BLOCK, (  # noqa: PT018 - one fact
                    f"request {name} has {'no block' if block is None else f'block {block}'} for "
                    f"position {entry * size}"
                )

    def check_adapters(self, plan: Any) -> None:  #: PLAN&adapters
        """A step has no more adapters than workers hold."""
        numbers = [part["request"] for part in plan["compute"]]
        adapters = {k[1] for n in numbers for k in self.requests[n].keys if k[0] == "lora"}
        assert len(adapters) <= MAX_ADAPTERS, (
            f"the step computes tokens with {len(adapters)} adapters of {MAX_ADAPTERS}"
        )

    def images_of(self, number: int) -> list[Any]:  #: PLAN&images
        """Those in a prompt: kind, identifier, first position, and the one behind the last."""
        return [key for key in self.requests[number].keys if key[0] == "image"]

    def check_images(self, plan: Any) -> None:  #: PLAN&images
        """An image is encoded before it is computed, and workers keep no more than they can."""
        encodes, forgets = list(plan.get("encodes") or ()), set(plan.get("forgets") or ())
        for image in (*encodes, *forgets):
            assert image in self.image_sizes, f"nobody submitted image {image!r}"
        total = sum(self.image_sizes[image] for image in encodes)
        assert not 0 < MAX_ENCODER_TOKENS < total, (
            f"the step encodes {total} positions of {MAX_ENCODER_TOKENS}"
        )
        self.encoded = (self.encoded - forgets) | set(encodes)
        kept = sum(self.image_sizes[image] for image in self.encoded)
        assert kept <= ENCODER_CACHE_TOKENS, (
            f"the worker keeps {kept} encoded positions of {ENCODER_CACHE_TOKENS}"
        )
        for part in plan["compute"]:
            for _, image, first, end in self.images_of(part["request"]):
                is_computed = first < part["first"] + part["count"] and part["first"] < end
                assert not is_computed or image in self.encoded, (
                    f"the step computes positions of image {image!r}, which is not encoded"
                )

    def finish(self, token: int, accepted: int = 0, drafts: int = 0) -> None:  #: LIVE|LEAK
        """Steps until every request has ended; nobody else comes, and all transfers arrive."""
        while self.waiting() or self.steps:
            most = 16 + 2 * sum(len(self.requests[number].tokens) for number in self.waiting())
            names = ", ".join(self.requests[number].name for number in self.waiting())
            assert self.num_quiet <= most, (
                f"requests {names} wait forever: in {self.num_quiet} steps nobody was given a token"
            )
            self.step_on(token, accepted, drafts)

    def waiting(self) -> list[int]:  #: LIVE|LEAK
        """The requests that have not ended."""
        return [number for number, request in self.requests.items() if request.is_live]

    def step_on(self, token: int, accepted: int, drafts: int) -> None:  #: LIVE|LEAK
        """Everything in flight comes to its end, and one step more."""
        while self.transfers:  #: moves
            self.arrive(0)
        while self.steps:
            self.answer(token, accepted, drafts)
        self.run(token, accepted, drafts)

    def check_rest(self) -> None:  #: LEAK
        """At rest every block is free and no request is left."""
        self.step_on(STOP_TOKEN, 0, 0)
        while self.transfers:  #: moves
            self.arrive(0)
        if hasattr(self.engine, "num_free"):
            free = self.engine.num_free()
            assert free == NUM_USABLE, f"all requests ended, {free} of {NUM_USABLE} blocks are free"
        if hasattr(self.engine, "unfinished"):
            left = list(self.engine.unfinished())
            assert not left, f"every request has ended, and the engine still has {left}"

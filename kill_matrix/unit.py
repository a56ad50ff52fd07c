"""A detector: a few dozen hand-written examples, such as an engine's own unit tests hold.

They are here to be compared with: each says something true and sensible, and together they find
few of the planted bugs. An example is a short sequence of calls with the answers that its author
expects, on a fresh instance. A manager has blocks enough for what they do unless they fill it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import Any

from poolproof.contract.level import Level
from poolproof.harness.isolation import Beacon
from poolproof.kill_matrix.detector import Detector, SearchOutcome
from poolproof.kill_matrix.subject import MatrixSubject

__all__ = ["UNIT", "examples_for"]


Rules = Any
"""The profile of what is tested: a `Profile`, a `ManagerProfile` or an `EngineProfile`."""

Body = Callable[[Any, Rules], None]


def _always(_rules: Rules) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class UnitExample:
    """One example; `run` raises AssertionError where an answer is not the one expected.

    It is written for allocators with the methods that it `needs`, under profiles that `suits`
    accepts.
    """

    name: str
    run: Body
    needs: tuple[str, ...]
    suits: Callable[[Rules], bool]

    def is_for(self, instance: Any, rules: Rules) -> bool:
        """Whether it can be run on such an instance."""
        has_all = all(callable(getattr(instance, name, None)) for name in self.needs)
        return has_all and self.suits(rules)


class Book(list[UnitExample]):
    """The examples of one level."""

    def add(self, *needs: str, suits: Callable[[Rules], bool] = _always) -> Callable[[Body], Body]:
        """A decorator that enters a function as an example."""

        def enter(body: Body) -> Body:
            self.append(UnitExample(body.__name__.replace("_", " "), body, needs, suits))
            return body

        return enter


QUEUE_EXAMPLES = Book()
queue_example = QUEUE_EXAMPLES.add


@queue_example()
def blocks_come_in_ascending_order(queue: Any, _rules: Rules) -> None:
    """A fresh queue holds all blocks, the lowest id first."""
    assert [queue.popleft() for _ in range(4)] == [0, 1, 2, 3]


@queue_example()
def the_counter_follows_single_operations(queue: Any, _rules: Rules) -> None:
    """Each pop is one less, each append one more."""
    num_blocks = queue.num_free()
    block = queue.popleft()
    assert queue.num_free() == num_blocks - 1
    queue.append(block)
    assert queue.num_free() == num_blocks


@queue_example()
def an_appended_block_comes_last(queue: Any, _rules: Rules) -> None:
    """What joins at the tail is taken when everything before it is gone."""
    first = queue.popleft()
    queue.append(first)
    order = [queue.popleft() for _ in range(queue.num_free())]
    assert order[-1] == first


@queue_example()
def a_block_is_removed_from_the_middle(queue: Any, _rules: Rules) -> None:
    """The others keep their order."""
    queue.remove(2)
    assert queue.free_order() == [0, 1, *range(3, queue.num_free() + 1)]


@queue_example()
def head_and_tail_can_be_removed(queue: Any, _rules: Rules) -> None:
    """The ends are blocks like any other."""
    last = queue.num_free() - 1
    queue.remove(0)
    queue.remove(last)
    assert queue.free_order() == list(range(1, last))


@queue_example("popleft_n")
def several_blocks_are_popped_at_once(queue: Any, _rules: Rules) -> None:
    """In the order in which single pops would take them."""
    assert queue.popleft_n(3) == [0, 1, 2]
    assert queue.free_order()[0] == 3


@queue_example("popleft_n", "append_n")
def several_blocks_are_appended_at_once(queue: Any, _rules: Rules) -> None:
    """In the order given."""
    taken = queue.popleft_n(2)
    queue.append_n(taken)
    assert queue.free_order()[-2:] == taken


@queue_example("prepend_n")
def a_prepended_block_comes_first(queue: Any, _rules: Rules) -> None:
    """What joins at the head is taken next."""
    queue.popleft()
    block = queue.popleft()
    queue.prepend_n([block])
    assert queue.popleft() == block


@queue_example()
def an_emptied_queue_fills_again(queue: Any, _rules: Rules) -> None:
    """Nothing is lost on the way through an empty queue."""
    taken = [queue.popleft() for _ in range(queue.num_free())]
    assert queue.num_free() == 0
    for block in taken:
        queue.append(block)
    assert queue.free_order() == taken


@queue_example()
def an_empty_queue_refuses(queue: Any, _rules: Rules) -> None:
    """There is nothing to take."""
    for _ in range(queue.num_free()):
        queue.popleft()
    try:
        queue.popleft()
    except (ValueError, MemoryError, IndexError):
        return
    raise AssertionError("an empty queue gave a block")


POOL_EXAMPLES = Book()
pool_example = POOL_EXAMPLES.add


def two_hashes(rules: Rules) -> tuple[bytes, bytes]:
    """Two block hashes."""
    length = rules.usual_hash_bytes
    return b"\x01" * length, b"\x02" * length


def allocated(pool: Any, count: int) -> list[int]:
    """The blocks of an allocation; some pools answer which hashes they evicted as well."""
    answer = pool.allocate(count)
    tells = isinstance(answer, tuple) and any(isinstance(part, list) for part in answer)
    return list(answer[0] if tells else answer)


def keeps_what_is_free(rules: Rules) -> bool:
    """Cached blocks stay cached until they are evicted."""
    return bool(rules.retention == "exact")


@pool_example()
def allocated_blocks_are_distinct(pool: Any, rules: Rules) -> None:
    """Three blocks are three blocks, and the null block is none of them."""
    num_free = pool.num_free()
    blocks = allocated(pool, 3)
    assert len(set(blocks)) == 3
    assert rules.null_block not in blocks
    assert pool.num_free() == num_free - 3


@pool_example()
def allocating_nothing_gives_nothing(pool: Any, _rules: Rules) -> None:
    """Zero is a count."""
    assert allocated(pool, 0) == []


@pool_example()
def a_full_pool_refuses(pool: Any, _rules: Rules) -> None:
    """There is nothing left to give."""
    allocated(pool, pool.num_free())
    assert pool.num_free() == 0
    try:
        pool.allocate(1)
    except (ValueError, MemoryError):
        return
    raise AssertionError("a full pool gave a block")


@pool_example()
def freed_blocks_are_free(pool: Any, _rules: Rules) -> None:
    """What was taken comes back."""
    num_free = pool.num_free()
    pool.free(allocated(pool, 3))
    assert pool.num_free() == num_free


@pool_example()
def freed_blocks_are_used_again(pool: Any, _rules: Rules) -> None:
    """The whole pool can be taken twice."""
    first = allocated(pool, pool.num_free())
    pool.free(list(first))
    assert set(allocated(pool, len(first))) == set(first)


@pool_example("lookup")
def a_cached_block_is_found(pool: Any, rules: Rules) -> None:
    """Under its hash, and under no other."""
    first, second = two_hashes(rules)
    (block,) = allocated(pool, 1)
    pool.cache([block], [first])
    assert pool.lookup(first) == block
    assert pool.lookup(second) is None


@pool_example("lookup", "touch", suits=keeps_what_is_free)
def a_cached_block_is_revived(pool: Any, rules: Rules) -> None:
    """It is found after it was freed, and is held again once it is touched."""
    first, _ = two_hashes(rules)
    num_free = pool.num_free()
    (block,) = allocated(pool, 1)
    pool.cache([block], [first])
    pool.free([block])
    assert pool.lookup(first) == block
    pool.touch([block])
    assert pool.num_free() == num_free - 1


@pool_example("touch")
def a_shared_block_waits_for_its_last_owner(pool: Any, rules: Rules) -> None:
    """Two references need two frees."""
    first, _ = two_hashes(rules)
    num_free = pool.num_free()
    (block,) = allocated(pool, 1)
    pool.cache([block], [first])
    pool.touch([block])
    pool.free([block])
    assert pool.num_free() == num_free - 1
    pool.free([block])
    assert pool.num_free() == num_free


@pool_example("lookup")
def a_block_that_is_used_again_is_forgotten(pool: Any, rules: Rules) -> None:
    """Its hash spoke of what it held before."""
    first, _ = two_hashes(rules)
    (block,) = allocated(pool, 1)
    pool.cache([block], [first])
    pool.free([block])
    allocated(pool, pool.num_free())
    assert pool.lookup(first) is None


@pool_example("lookup", "evict")
def an_evicted_block_is_forgotten(pool: Any, rules: Rules) -> None:
    """It stays with whoever holds it."""
    first, _ = two_hashes(rules)
    (block,) = allocated(pool, 1)
    num_free = pool.num_free()
    pool.cache([block], [first])
    pool.evict([block])
    assert pool.lookup(first) is None
    assert pool.num_free() == num_free


@pool_example("lookup", "reset")
def a_reset_forgets_everything(pool: Any, rules: Rules) -> None:
    """Once nobody holds anything."""
    first, _ = two_hashes(rules)
    (block,) = allocated(pool, 1)
    pool.cache([block], [first])
    pool.free([block])
    assert pool.reset() is True
    assert pool.lookup(first) is None


@pool_example("reset")
def a_reset_is_refused_while_blocks_are_held(pool: Any, _rules: Rules) -> None:
    """Somebody still reads them."""
    allocated(pool, 1)
    assert pool.reset() is False


@pool_example(suits=lambda rules: rules.eviction == "lru")
def the_block_freed_first_is_used_first(pool: Any, _rules: Rules) -> None:
    """The order of `free` is the order of eviction."""
    first, second = allocated(pool, pool.num_free())[:2]
    pool.free([second])
    pool.free([first])
    assert allocated(pool, 2) == [second, first]


@pool_example("free_order", suits=lambda rules: rules.eviction == "lifo")
def the_block_freed_last_is_used_first(pool: Any, _rules: Rules) -> None:
    """Each freed block goes to the head."""
    first, second = allocated(pool, 2)
    pool.free([first])
    pool.free([second])
    assert allocated(pool, 1) == [second]


MANAGER_EXAMPLES = Book()
manager_example = MANAGER_EXAMPLES.add

MOST_SEQUENCES = 100
"""More than fit into the pool of any manager_example."""


def block_size_of(manager: Any, rules: Rules) -> int:
    """Tokens a block in the first group."""
    return int(rules.groups[0].block_size or manager.block_size)


def table_of(manager: Any, seq_id: int) -> list[int]:
    """The blocks of a sequence as plain numbers."""
    return [index(block) for block in manager.block_table(seq_id)]


def caches(rules: Rules) -> bool:
    """Whether a prefix that was computed is found, all of it."""
    return bool(rules.publishes != "never" and rules.hits == "exact")


def takes_no_more_than_it_needs(rules: Rules) -> bool:
    """Whether the length of a table follows from the number of tokens alone."""
    return not rules.lookahead_tokens


def frees_at_once(rules: Rules) -> bool:
    """Whether what is given back is free right away."""
    return bool(rules.frees == "at-once")


def compute(manager: Any, seq_id: int, tokens: list[int], cached: int = 0) -> None:
    """One forward pass over what is not cached."""
    manager.step([(seq_id, len(tokens) - cached)])


@manager_example(suits=takes_no_more_than_it_needs)
def a_prompt_takes_the_blocks_that_it_fills(manager: Any, rules: Rules) -> None:
    """Two blocks of tokens are two distinct blocks."""
    prompt = [1] * 2 * block_size_of(manager, rules)
    assert manager.admit(0, prompt) == 0
    table = table_of(manager, 0)
    assert len(table) == len(set(table)) == 2


@manager_example()
def two_sequences_have_blocks_of_their_own(manager: Any, rules: Rules) -> None:
    """Other tokens, other blocks."""
    length = 2 * block_size_of(manager, rules)
    manager.admit(0, [1] * length)
    manager.admit(1, [2] * length)
    assert not set(table_of(manager, 0)) & set(table_of(manager, 1))


@manager_example("num_free", suits=frees_at_once)
def a_finished_sequence_gives_its_blocks_back(manager: Any, rules: Rules) -> None:
    """All of them."""
    num_free = manager.num_free()
    prompt = [1] * (2 * block_size_of(manager, rules) + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.finish(0)
    assert manager.num_free() == num_free


@manager_example(suits=takes_no_more_than_it_needs)
def a_token_beyond_the_last_block_takes_another(manager: Any, rules: Rules) -> None:
    """And the one after it does not."""
    prompt = [1] * block_size_of(manager, rules)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    lengths = []
    for token in (2, 3):
        manager.append(0, [token])
        manager.step([(0, 1)])
        lengths.append(len(table_of(manager, 0)))
    assert lengths == [2, 2]


@manager_example(suits=caches)
def the_same_prompt_is_found(manager: Any, rules: Rules) -> None:
    """After the first sequence has ended."""
    size = block_size_of(manager, rules)
    prompt = [1] * (2 * size + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.finish(0)
    assert manager.admit(1, prompt) == 2 * size


@manager_example(suits=caches)
def running_sequences_share_a_prefix(manager: Any, rules: Rules) -> None:
    """The second one's table begins with the blocks of the first."""
    size = block_size_of(manager, rules)
    prompt = [1] * (size + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    assert manager.admit(1, prompt) == size
    assert table_of(manager, 0)[0] == table_of(manager, 1)[0]


@manager_example("num_free", suits=lambda rules: caches(rules) and frees_at_once(rules))
def a_shared_prefix_outlives_its_first_owner(manager: Any, rules: Rules) -> None:
    """The blocks are free when both have ended."""
    num_free = manager.num_free()
    size = block_size_of(manager, rules)
    prompt = [1] * (size + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.admit(1, prompt)
    compute(manager, 1, prompt, size)
    manager.finish(0)
    assert manager.num_free() != num_free
    manager.finish(1)
    assert manager.num_free() == num_free


@manager_example(suits=lambda rules: caches(rules) and not rules.groups[0].is_chunked)
def another_prompt_is_not_found(manager: Any, rules: Rules) -> None:
    """Nor is the same one under an adapter."""
    prompt = [1] * (2 * block_size_of(manager, rules) + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    assert manager.admit(1, [2, *prompt[1:]]) == 0
    adapter = (("lora", ("name", "path"), 0, None),)
    assert manager.admit(2, prompt, extra_keys=adapter) == 0


@manager_example(
    "num_free", suits=lambda rules: rules.admission == "exact" and frees_at_once(rules)
)
def what_does_not_fit_waits_until_something_ends(manager: Any, rules: Rules) -> None:
    """A refusal takes nothing."""
    length = 2 * block_size_of(manager, rules)
    admitted = 0
    while manager.admit(admitted, [admitted] * length) != "later":
        compute(manager, admitted, [admitted] * length)
        admitted += 1
        assert admitted < MOST_SEQUENCES
    num_free = manager.num_free()
    assert manager.admit(admitted, [admitted] * length) == "later"
    assert manager.num_free() == num_free
    manager.finish(0)
    assert manager.admit(admitted, [admitted] * length) == 0


@manager_example("num_free", suits=lambda rules: rules.never == "told")
def what_can_never_fit_is_told(manager: Any, rules: Rules) -> None:
    """It would wait for ever."""
    # Windows give back what they no longer read; this is too much for full attention.
    if rules.groups[0].is_full:
        assert manager.admit(0, [1] * 1000 * block_size_of(manager, rules)) == "never"


@manager_example(
    "fork",
    "num_free",
    suits=lambda rules: frees_at_once(rules) and takes_no_more_than_it_needs(rules),
)
def a_fork_shares_the_blocks_of_its_parent(manager: Any, rules: Rules) -> None:
    """And both give them back."""
    num_free = manager.num_free()
    prompt = [1] * 2 * block_size_of(manager, rules)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.fork(0, 1)
    assert table_of(manager, 0) == table_of(manager, 1)
    manager.finish(0)
    manager.finish(1)
    assert manager.num_free() == num_free


@manager_example("fork", suits=lambda rules: rules.window_blocks == "freed")
def a_fork_writes_into_a_block_of_its_own(manager: Any, rules: Rules) -> None:
    """A tail that is filled in part is copied before one of the two goes on."""
    prompt = [1] * (block_size_of(manager, rules) + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.fork(0, 1)
    manager.append(1, [2])
    assert table_of(manager, 0)[1] != table_of(manager, 1)[1]


@manager_example("preempt", "num_free", suits=frees_at_once)
def a_preempted_sequence_comes_back(manager: Any, rules: Rules) -> None:
    """Its blocks are free meanwhile."""
    num_free = manager.num_free()
    prompt = [1] * (block_size_of(manager, rules) + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.preempt(0)
    assert manager.num_free() == num_free
    answer = manager.admit(0, prompt)
    assert answer != "later"
    assert answer != "never"


@manager_example("abort", "num_free", suits=frees_at_once)
def an_aborted_sequence_gives_its_blocks_back(manager: Any, rules: Rules) -> None:
    """Like one that has finished."""
    num_free = manager.num_free()
    prompt = [1] * (block_size_of(manager, rules) + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.abort(0)
    assert manager.num_free() == num_free


@manager_example("reset", suits=lambda rules: caches(rules) and frees_at_once(rules))
def a_reset_forgets_what_is_cached(manager: Any, rules: Rules) -> None:
    """The same prompt is computed anew."""
    prompt = [1] * (block_size_of(manager, rules) + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.finish(0)
    assert manager.reset() is True
    assert manager.admit(1, prompt) == 0


ENGINE_EXAMPLES = Book()
engine_example = ENGINE_EXAMPLES.add


def step(engine: Any, requests: dict[int, list[int]], token: int) -> tuple[Any, Any]:
    """Plan a step and answer it as a worker does; the plan, and what users are given.

    `requests` are the tokens of those that wait, which grow. Transfers arrive at once.
    """
    plan = engine.plan()
    for transfer in plan.get("transfers") or ():
        engine.arrived(transfer["id"], True)
    sampled = {
        part["request"]: [token]
        for part in plan["compute"]
        if part["first"] + part["count"] == len(requests[part["request"]]) + part.get("drafts", 0)
    }
    given = engine.answer(sampled, {})
    for request, tokens, _ in given:
        requests[request] += tokens
    return plan, given


def serve(engine: Any, requests: dict[int, list[int]], token: int = 1) -> dict[int, list[int]]:
    """Step until every request has ended; what each user was given."""
    got: dict[int, list[int]] = {request: [] for request in requests}
    waiting = set(requests)
    for _ in range(200):
        if not waiting:
            return got
        for request, tokens, has_ended in step(engine, requests, token)[1]:
            got[request] += tokens
            waiting -= {request} if has_ended else set()
    raise AssertionError(f"after 200 steps requests {sorted(waiting)} still wait")


@engine_example()
def a_request_gets_as_many_tokens_as_it_wants(engine: Any, _rules: Rules) -> None:
    """Those that were sampled."""
    engine.submit(0, [1, 2, 3], max_new_tokens=3)
    assert serve(engine, {0: [1, 2, 3]}) == {0: [1, 1, 1]}


@engine_example()
def a_request_ends_with_the_stop_token(engine: Any, _rules: Rules) -> None:
    """Its user is given it."""
    engine.submit(0, [1, 2, 3], max_new_tokens=3)
    assert serve(engine, {0: [1, 2, 3]}, token=0) == {0: [0]}


@engine_example()
def a_prompt_is_computed_from_its_beginning(engine: Any, _rules: Rules) -> None:
    """Nothing is cached yet."""
    engine.submit(0, [1, 2, 3], max_new_tokens=1)
    requests = {0: [1, 2, 3]}
    plans = [step(engine, requests, 1)[0] for _ in range(8)]
    parts = [part for plan in plans for part in plan["compute"]]
    assert [part["request"] for part in parts][:1] == [0]
    assert parts[0]["first"] == 0


@engine_example()
def a_long_prompt_is_cut(engine: Any, rules: Rules) -> None:
    """No step computes more than it may."""
    requests = {0: [1] * 40}
    engine.submit(0, [1] * 40, max_new_tokens=1)
    for _ in range(40):
        plan, given = step(engine, requests, 1)
        assert sum(part["count"] for part in plan["compute"]) <= rules.max_batch_tokens
        if given:
            return
    raise AssertionError("the prompt was never computed")


@engine_example()
def several_requests_are_served(engine: Any, _rules: Rules) -> None:
    """More than have a seat."""
    requests = {number: [1, 2, 3, number + 1] for number in range(10)}
    for number, tokens in requests.items():
        engine.submit(number, list(tokens), max_new_tokens=2)
    assert serve(engine, requests) == {number: [1, 1] for number in range(10)}


@engine_example()
def the_same_prompt_is_not_computed_twice_as_long(engine: Any, _rules: Rules) -> None:
    """What is cached can only help."""
    counts = []
    for number in range(2):
        engine.submit(number, [1] * 12, max_new_tokens=1)
        requests, count = {number: [1] * 12}, 0
        for _ in range(20):
            plan, given = step(engine, requests, 1)
            count += sum(part["count"] for part in plan["compute"])
            if given:
                break
        counts.append(count)
    assert counts[1] <= counts[0]


@engine_example("num_free")
def blocks_are_free_when_a_request_has_ended(engine: Any, _rules: Rules) -> None:
    """After one step more, in which nothing is computed."""
    num_free = engine.num_free()
    engine.submit(0, [1] * 9, max_new_tokens=2)
    serve(engine, {0: [1] * 9})
    step(engine, {}, 1)
    assert engine.num_free() == num_free


@engine_example("cancel", "num_free")
def a_cancelled_request_gives_its_blocks_back(engine: Any, rules: Rules) -> None:
    """And is computed no more, or once more where that is the design."""
    num_free = engine.num_free()
    engine.submit(0, [1] * 9, max_new_tokens=4)
    requests = {0: [1] * 9}
    for _ in range(4):
        step(engine, requests, 1)
        if len(requests[0]) > 9:
            break
    engine.cancel(0)
    if rules.cancelled_outputs == "one-more":
        step(engine, requests, 1)
    for _ in range(4):
        assert not step(engine, requests, 1)[0]["compute"]
    assert engine.num_free() == num_free


@engine_example("unfinished")
def a_request_is_there_until_it_has_ended(engine: Any, _rules: Rules) -> None:
    """Then nobody is."""
    engine.submit(0, [1, 2], max_new_tokens=1)
    assert list(engine.unfinished()) == [0]
    serve(engine, {0: [1, 2]})
    step(engine, {}, 1)
    assert list(engine.unfinished()) == []


@engine_example("reset")
def a_reset_does_no_harm(engine: Any, _rules: Rules) -> None:
    """Who comes after it is served."""
    for number in range(2):
        engine.submit(number, [1] * 8, max_new_tokens=1)
        serve(engine, {number: [1] * 8})
        step(engine, {}, 1)
        assert engine.reset() in (True, False)


_BOOKS: dict[Level, Book] = {
    Level.QUEUE: QUEUE_EXAMPLES,
    Level.POOL: POOL_EXAMPLES,
    Level.MANAGER: MANAGER_EXAMPLES,
    Level.ENGINE: ENGINE_EXAMPLES,
}
_USABLE_BLOCKS = {Level.QUEUE: 6, Level.POOL: 6, Level.MANAGER: 24, Level.ENGINE: 24}


class _Counted:
    """An instance whose calls are counted and shown to the watchman."""

    def __init__(self, instance: Any, block_size: int, beacon: Beacon) -> None:
        self._instance = instance
        self._beacon = beacon
        self.block_size = block_size
        self.num_calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._instance, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.num_calls += 1
            self._beacon.bump()
            return found(*arguments, **named)

        return call


def examples_for(subject: MatrixSubject) -> Book:
    """The examples of the subject's level; those that do not suit it are left out when they run."""
    return _BOOKS[subject.level]


def _build(subject: MatrixSubject, beacon: Beacon) -> _Counted:
    null = subject.profile.null_block
    usable = _USABLE_BLOCKS[subject.level]
    num_blocks = usable if null is None else max(usable, null) + 1
    return _Counted(subject.make(num_blocks, True), subject.block_size, beacon)


def _run_examples(subject: MatrixSubject, _seed: int, beacon: Beacon) -> SearchOutcome:
    began = time.process_time()
    steps = 0
    for example in examples_for(subject):
        instance = _build(subject, beacon)
        if not example.is_for(instance, subject.profile):
            continue
        failure = _failure(partial(example.run, instance, subject.profile))
        steps += instance.num_calls
        if failure is not None:
            seconds = time.process_time() - began
            note = f"{example.name}: {failure}"
            return SearchOutcome(True, steps, seconds, length=instance.num_calls, note=note)
    return SearchOutcome(False, steps, time.process_time() - began)


def _failure(run: Callable[[], None]) -> str | None:
    """How an example failed, or None."""
    try:
        run()
    except AssertionError as error:
        return str(error) or "another answer was expected"
    except Exception as error:  # noqa: BLE001 - a planted bug may raise anything
        return f"it raised {type(error).__name__}"
    return None


UNIT = Detector(
    "unit",
    "hand-written examples, as an engine's own unit tests hold",
    _run_examples,
    is_seeded=False,
)

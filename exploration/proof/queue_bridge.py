"""The bridge for the free queue: list model, `DictQueue` and real links, compared entirely.

For a few blocks every list is built in all three; every operation with every argument, the batch
forms as the loops that are proved, is tried, and orders, lengths and all links must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableSequence, Sequence
from itertools import pairwise, permutations
from typing import Any, Protocol

from poolproof.contract.commands import (
    Append,
    AppendN,
    Command,
    PopLeft,
    PopLeftN,
    PrependN,
    Remove,
)
from poolproof.exploration.proof.all_models import MODELS
from poolproof.exploration.proof.concrete_state import broken_in
from poolproof.exploration.proof.logic import ConcreteLogic
from poolproof.exploration.proof.model import Model, State
from poolproof.exploration.proof.pool_bridge import BridgeError
from poolproof.reference.dict_queue import DictQueue
from poolproof.reference.legality import queue_misuse_of

__all__ = ["LinkedQueue", "compare_queue"]

_NIL = -1


class LinkedQueue(Protocol):
    """A free queue that shows its links: two arrays over blocks, head and tail."""

    next: MutableSequence[int]
    previous: MutableSequence[int]
    head: int
    tail: int
    length: int

    def popleft(self) -> int: ...
    def popleft_n(self, n: int) -> list[int]: ...
    def remove(self, block_id: int) -> None: ...
    def append(self, block_id: int) -> None: ...
    def append_n(self, block_ids: Sequence[int]) -> None: ...
    def prepend_n(self, block_ids: Sequence[int]) -> None: ...


Links = tuple[tuple[int, ...], tuple[int, ...], int]
"""next, previous, length."""


def compare_queue(
    num_blocks: int, make: Callable[[int], LinkedQueue], models: dict[str, Model] | None = None
) -> int:
    """Compare all lists of `num_blocks` blocks; how many (list, operation, arguments) that were.

    `make` builds a queue of so many blocks that raises ValueError on misuse and changes nothing.
    Raises BridgeError with list and operation where model, specification and links differ.
    """
    bridge = _Bridge(num_blocks, make, MODELS if models is None else models)
    bridge.compare_initial()
    blocks = range(num_blocks)
    orders = [order for size in range(num_blocks + 1) for order in permutations(blocks, size)]
    return sum(bridge.compare(order) for order in orders)


class _Bridge:
    def __init__(
        self, num_blocks: int, make: Callable[[int], LinkedQueue], models: dict[str, Model]
    ) -> None:
        self.num_blocks = num_blocks
        self.make = make
        self.models = models
        places = range(-1, 3 * num_blocks + 2)
        self.logic = ConcreteLogic({"Node": range(-1, num_blocks + 2), "Int": places})

    def compare_initial(self) -> None:
        """A new queue is the list of all blocks, which the model has as any other list."""
        new = _links(self.make(self.num_blocks))
        expected = self._links_of(self._state(tuple(DictQueue(self.num_blocks).order), {}))
        if new != expected:
            raise BridgeError(f"a new queue is {new}, not {expected}")

    def compare(self, order: tuple[int, ...]) -> int:
        """Every operation on one list."""
        compared = 0
        for command in self._commands(order):
            before = self._linked(order)
            modelled = self._by_model(order, command)
            legal = queue_misuse_of(self._specified(order), command) is None
            real = self._by_links(before, command)
            if (modelled is None) is legal or modelled != real:
                raise BridgeError(
                    f"{list(order)}, {command}: legal {legal}, links {real}, model {modelled}"
                )
            if modelled is not None:
                expected = self._specified(order)
                _apply(expected, command)
                if modelled != _links(self._linked(tuple(expected.order))):
                    raise BridgeError(
                        f"{list(order)}, {command}: the specification has {list(expected.order)}, "
                        f"the model {modelled}"
                    )
            compared += 1
        return compared

    def _commands(self, order: tuple[int, ...]) -> Iterator[Command]:
        blocks = range(self.num_blocks)
        outside = [block for block in blocks if block not in order]
        yield PopLeft()
        yield from map(PopLeftN, range(len(order) + 1))
        yield from map(Remove, blocks)
        yield from map(Append, blocks)
        for size in range(len(outside) + 1):
            for batch in permutations(outside, size):
                yield from (AppendN(batch), PrependN(batch))

    def _specified(self, order: tuple[int, ...]) -> DictQueue:
        queue = DictQueue(self.num_blocks)
        queue.order.clear()
        queue.order.update(dict.fromkeys(order))
        return queue

    def _linked(self, order: tuple[int, ...]) -> LinkedQueue:
        """The real queue with these blocks: all popped, then these appended."""
        queue = self.make(self.num_blocks)
        for _ in range(self.num_blocks):
            queue.popleft()
        for block in order:
            queue.append(block)
        return queue

    def _by_links(self, queue: LinkedQueue, command: Command) -> Links | None:
        """The links after the command, None where it is refused."""
        try:
            _apply(queue, command)
        except ValueError:
            return None
        return _links(queue)

    def _by_model(self, order: tuple[int, ...], command: Command) -> Links | None:
        """The links after the action, None where it is not enabled."""
        match command:
            case PopLeftN(count=count):
                return self._loop("popleft_n", order, count, ())
            case AppendN(block_ids=ids):
                return self._loop("append_n", order, len(ids), ids)
            case PrependN(block_ids=ids):
                return self._loop("prepend_n", order, len(ids), ids)
            case Remove(block_id=block) | Append(block_id=block):
                return self._one(order, command.verb, (block,))
        return self._one(order, command.verb, ())

    def _one(self, order: tuple[int, ...], name: str, parameters: tuple[int, ...]) -> Links | None:
        model = self.models["queue"]
        action = model.action(name)
        state = self._state(order, {})
        self._check(model, state)
        if not action.guard(self.logic, state, *parameters):
            return None
        after = state.after(action.effect(self.logic, state, *parameters))
        self._check(model, after)
        return self._links_of(after)

    def _loop(self, name: str, order: tuple[int, ...], total: int, batch: Sequence[int]) -> Links:
        """The loop run to its end; its invariants are checked each time around."""
        model = self.models[name]
        body, rest = model.action("body"), model.action("rest")
        state = self._state(order, dict(enumerate(batch)), total)
        state = self._entered(name, state)
        if not model.initial(self.logic, state):
            raise BridgeError(f"{name} cannot start in {list(order)} with {list(batch)}")
        while body.guard(self.logic, state):
            self._check(model, state)
            state = state.after(body.effect(self.logic, state))
        self._check(model, state)
        assert rest.guard(self.logic, state)
        after = state.after(rest.effect(self.logic, state))
        self._check(self.models["queue"], after)
        return self._links_of(after)

    def _check(self, model: Model, state: State) -> None:
        broken = broken_in(model, self.logic, state)
        if broken:
            raise BridgeError(f"{model.name} breaks {', '.join(broken)} at {self._links_of(state)}")

    def _entered(self, name: str, state: State) -> State:
        """The state in which the loop begins, its variables set."""
        if name == "popleft_n":
            return state.after({"cursor": state.next(state.head)})
        if name == "append_n":
            return state.after({"cursor": state.previous(state.tail)})
        at, low = state.at, state.first - state.total - 1
        return state.after(
            {
                "cursor": state.head,
                "following": state.next(state.head),
                "at": lambda i: state.head if i == low else at(i),
            }
        )

    def _state(self, order: tuple[int, ...], batch: dict[int, int], total: int = 0) -> State:
        """The model's state of this list, with room for a batch before and behind it."""
        head, tail = self.num_blocks, self.num_blocks + 1
        first = self.num_blocks
        at = dict(enumerate((head, *order, tail), start=first - 1))
        index = {block: place for place, block in at.items()}
        line = [head, *order, tail]
        following = dict(pairwise(line))
        before = {after: block for block, after in pairwise(line)}
        return State(
            {
                "head": head,
                "tail": tail,
                "nil": _NIL,
                "next": lambda n: following.get(n, _NIL),
                "previous": lambda n: before.get(n, _NIL),
                "member": lambda n: n in order,
                "at": lambda i: at.get(i, _NIL),
                "index": lambda n: index.get(n, 0),
                "first": first,
                "end": first + len(order),
                "length": len(order),
                "batch": lambda i: batch.get(i, _NIL),
                "cursor": _NIL,
                "following": _NIL,
                "done": 0,
                "total": total,
            }
        )

    def _links_of(self, state: State) -> Links:
        nodes = range(self.num_blocks + 2)
        return tuple(map(state.next, nodes)), tuple(map(state.previous, nodes)), state.length


def _links(queue: LinkedQueue) -> Links:
    return tuple(queue.next), tuple(queue.previous), queue.length


def _apply(queue: Any, command: Command) -> None:
    """Apply the command to the specification or to the real queue."""
    match command:
        case PopLeft():
            queue.popleft()
        case PopLeftN(count=count):
            queue.popleft_n(count)
        case Remove(block_id=block):
            queue.remove(block)
        case Append(block_id=block):
            queue.append(block)
        case AppendN(block_ids=ids):
            queue.append_n(ids)
        case _:
            assert isinstance(command, PrependN)
            queue.prepend_n(command.block_ids)

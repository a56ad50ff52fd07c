"""A manager in another process: what a program of the protocol's version 2 looks like from here.

Its verbs are the methods of docs/managers.md, under their names. They are asked one by one: which
blocks a manager chooses is its own business, so that no answer is known beforehand. What is shown
with an answer, above all the tables that have changed, is kept, and looking at it costs nothing.
In large pools nothing is shown until it is looked at: one table, the number of free blocks, or
everything at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import MANAGER_METHODS
from poolproof.contract.outside import shown
from poolproof.targets.command_messages import Hello, short
from poolproof.targets.command_process import Asks, CommandSession, LiveAnswers, broken
from poolproof.targets.target import Make, ManagerLayout

__all__ = [
    "MANAGERS_SINCE",
    "MANAGER_REQUIRED",
    "MANAGER_SHOWN",
    "MANAGER_VERBS",
    "CommandManager",
    "manager_layout",
    "manager_text",
]

MANAGERS_SINCE = 2
"""The version of the protocol that has managers."""

MANAGER_VERBS = tuple(dict.fromkeys(MANAGER_METHODS.values()))
MANAGER_REQUIRED = ("admit", "append", "step", "finish")

_PART_OF = {
    "num_free": "num_free",
    "free_order": "free_order",
    "ref_count": "ref_counts",
    "is_cached": "cached",
    "free_neighbours": "neighbours",
    "num_free_host": "num_free_host",
}
"""What an observer reads in the state."""

_BY_BLOCK = ("ref_counts", "cached", "neighbours")

MANAGER_SHOWN = (*_PART_OF, "take_table_update")

_ARGUMENTS = {
    "append": ("tokens",),
    "draft": ("tokens",),
    "accept": ("num_tokens",),
    "schedule": ("num_tokens",),
    "truncate": ("num_tokens",),
    "fork": ("child_id",),
}
"""The arguments behind `seq_id`, of verbs that have others than that one."""


def manager_text(verb: str, **arguments: Any) -> str:
    """A command or a question as JSON."""
    return json.dumps({"do": verb, **arguments}, separators=(",", ":"))


class CommandManager:
    """One instance of the target; it has the verbs and observers that the program announced."""

    poolproof_one_at_a_time = True
    """A program plays one run after another: a second instance would end the first."""

    def __init__(
        self, hello: Hello, num_blocks: int, answers: Asks, state: Mapping[str, Any] | None
    ) -> None:
        self._num_blocks = num_blocks
        self._ask = answers.ask
        self.poolproof_abandon = answers.abandon
        self._is_shown = state is not None
        self._is_fresh = self._is_shown
        self._shown: dict[str, Any] = {}
        self._tables: dict[str, list[Any]] = {}
        self._asked: dict[str, list[Any]] = {}
        """Tables that were asked for since the last command."""
        observers = {name: part for name, part in _PART_OF.items() if name in hello.observers}
        for verb in hello.verbs:
            setattr(self, verb, self._verb(verb))
        for name, part in observers.items():
            setattr(self, name, self._observer(name, part))
        if "take_table_update" in hello.observers:
            self.take_table_update = self._take_table_update
        if state is not None:
            missing = sorted(set(observers.values()) - state.keys())
            if missing:
                raise broken(f"the state before the first command lacks {', '.join(missing)}")
            self._see(state)

    def _verb(self, verb: str) -> Callable[..., Any]:
        if verb in {"admit", "load"}:
            return lambda *given, **named: _admission(self._do_admission(verb, *given, **named))
        if verb == "lookup_prefix":
            return self._lookup_prefix
        if verb == "step":
            return lambda batch, **told: self._do(verb, batch=batch, **told)
        if verb == "reset":
            return lambda: self._do(verb)
        names = _ARGUMENTS.get(verb, ())
        return lambda seq_id, *given, **told: self._do(
            verb, seq_id=seq_id, **dict(zip(names, given)), **told
        )

    def _do_admission(
        self,
        verb: str,
        seq_id: int,
        tokens: Sequence[int],
        *,
        extra_keys: Any = None,
        num_tokens: int | None = None,
    ) -> Any:
        return self._do(
            verb, seq_id=seq_id, tokens=tokens, extra_keys=extra_keys, num_tokens=num_tokens
        )

    def _lookup_prefix(self, tokens: Sequence[int], *, extra_keys: Any = None) -> Any:
        return self._do("lookup_prefix", tokens=tokens, extra_keys=extra_keys)

    def block_table(self, seq_id: int, group: int = 0) -> Any:
        """The table of a sequence, as it was shown last.

        Where nothing is shown it is asked for; with the second one all tables are looked at.
        """
        name = str(seq_id)
        if not self._is_fresh and name not in self._asked:
            if self._asked:
                self._look()
            else:
                answer = self._ask(manager_text("block_table", seq_id=seq_id))
                self._asked[name] = self._tables_in({name: answer.get("result")})[name]
        tables = (self._tables if self._is_fresh else self._asked).get(name)
        if tables is None or group >= len(tables):
            raise broken(f'"tables" has not shown the table of sequence {seq_id}, group {group}')
        return tables[group]

    def _look(self) -> None:
        """Have everything shown that has changed since it was shown last."""
        self._see(self._ask(manager_text("show")))
        self._is_fresh = True

    def _part(self, part: str) -> Any:
        if not self._is_fresh:
            if part == "num_free":
                return self._ask(manager_text(part)).get("result")
            self._look()
        if part not in self._shown:
            raise broken(f'"{part}" has not been shown')
        return self._shown[part]

    def _observer(self, name: str, part: str) -> Callable[..., Any]:
        def of_block(block: int) -> Any:
            return _plain(self._part(part)[block])

        def of_all() -> Any:
            return self._part(part)

        observer = of_block if part in _BY_BLOCK else of_all
        observer.__name__ = name  # as findings name it
        return observer

    def _take_table_update(self, seq_id: int, group: int) -> Any:
        return self._do("take_table_update", seq_id=seq_id, group=group)

    def _do(self, verb: str, **arguments: Any) -> Any:
        """The result of a command. Raises ViolationError, and ValueError for a refusal."""
        answer = self._ask(manager_text(verb, **arguments))
        self._asked = {}
        self._is_fresh = self._is_shown
        self._see(answer)
        if "error" in answer:
            raise broken(f"the program says that it failed: {short(answer['error'])}")
        if "skipped" in answer:
            raise broken(
                f"the program skips this command ({short(answer['skipped'])}), although its answer "
                "to start has the verb; leave it out there"
            )
        if "refused" in answer:
            raise ValueError(short(answer["refused"]))
        return answer.get("result")

    def _see(self, answer: Mapping[str, Any]) -> None:
        """Store what an answer shows; what it leaves out has not changed."""
        for part in _BY_BLOCK:
            values = answer.get(part, self)
            if values is not self and (
                not isinstance(values, list) or len(values) != self._num_blocks
            ):
                raise broken(
                    f'"{part}" is no list with an entry for each block, but {shown(values)}'
                )
        self._shown.update(answer)
        if "tables" in answer:
            self._tables.update(self._tables_in(answer["tables"]))

    @staticmethod
    def _tables_in(tables: Any) -> dict[str, list[Any]]:
        """By sequence, a table for each cache group. Raises ViolationError for anything else."""
        if not isinstance(tables, dict):
            raise broken(f'"tables" is no object of sequences, but {shown(tables)}')
        for seq_id, its_tables in tables.items():
            if not isinstance(its_tables, list) or not all(
                isinstance(table, list) for table in its_tables
            ):
                raise broken(
                    f'"tables" of sequence {short(seq_id)} is no list with a table for each group, '
                    f"but {shown(its_tables)}"
                )
        return tables


def _admission(result: Any) -> Any:
    """What an admission answers; JSON has no tuples."""
    return tuple(result) if isinstance(result, list) else result


def _plain(value: Any) -> Any:
    """A pair of neighbours is a tuple."""
    return tuple(value) if isinstance(value, list) else value


def manager_layout(
    session: CommandSession, hello: Hello, profile: ManagerProfile, block_size: int
) -> ManagerLayout:
    """The one layout of a program that is a manager; its usual runs have blocks of that size."""

    def make_of(block_size: int) -> Make:
        def make(num_blocks: int, enable_caching: bool) -> CommandManager:
            state, _ = session.begin(num_blocks, enable_caching, block_size=block_size)
            return CommandManager(hello, num_blocks, LiveAnswers(session), state or None)

        return make

    return ManagerLayout(
        profile.layout_name, profile, make_of(block_size), block_size, make_of=make_of
    )

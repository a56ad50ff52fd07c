"""A trace as a script that calls the target's own methods and needs nothing of Poolproof.

For native pools, queues and managers that are named by file or module. Answers, a manager's tables
and the state after the last command are compared with what the reference says, as far as the
target lets them be seen. Traces of pools with token chains have no such form: the adapter's part
of them cannot be written as plain calls. What a sequence reads cannot be seen without the shadow
memory: a finding of that kind shows in the script only if an answer or a table is wrong as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from poolproof.certification.manager_watch import Seen, Watched, watch
from poolproof.certification.right_target import right_target
from poolproof.contract.commands import Allocate, Command, Lookup, Reset
from poolproof.contract.manager_commands import LookupPrefix, Step
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import MANAGER_METHODS
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.reference.legality import misuse_of
from poolproof.report.drawing import ExpectedPool, KeyLetters, LostTrackError
from poolproof.report.regression_test import comment
from poolproof.targets.target_spec import TargetSpec

__all__ = ["manager_reproducer", "reproducer"]


_RAISES = """\
try:
    {call}
except {errors}:
    pass
else:
    raise AssertionError({message!r})"""


def reproducer(trace: Trace) -> str:
    """The text of the script. Raises TargetError where there is no such form."""
    if any(hasattr(command, "chain") for command in trace.commands):
        raise TargetError(
            "only traces of native pools without token chains can be written as plain calls; "
            "use --as pytest"
        )
    letters = KeyLetters()
    imports = import_lines(trace, "Pool")
    parts = [comment(trace), "", *imports, "", *_calls(trace, letters)]
    hashes = [f"{letter} = bytes.fromhex({value.hex()!r})" for value, letter in letters.opaque()]
    place = parts.index("") + 1 + len(imports)
    return "\n".join([*parts[:place], *([""] if hashes else []), *hashes, *parts[place:]]) + "\n"


def import_lines(trace: Trace, alias: str) -> list[str]:
    """The imports that define `alias` as the target's class. Raises TargetError for others."""
    place, _, name = TargetSpec.parse(trace.target).base.rpartition(":")
    if not place or not all(part.isidentifier() for part in name.split(".")):
        raise TargetError(
            f"{trace.target} is not a class that a script can import; use --as pytest"
        )
    first, *rest = name.split(".")
    renamed = [f"{alias} = {name}"] if rest or first != alias else []
    if place.endswith(".py") or "/" in place:
        path = str(Path(place))
        return [
            "import importlib.util",
            "",
            f"spec = importlib.util.spec_from_file_location('target', {path!r})",
            "module = importlib.util.module_from_spec(spec)",
            "spec.loader.exec_module(module)",
            f"{alias} = module.{name}",
        ]
    if not all(part.isidentifier() for part in place.split(".")):
        raise TargetError(f"{place} is not the name of a module; use --as pytest")
    return [f"from {place} import {first}", *renamed]


def _calls(trace: Trace, letters: KeyLetters) -> Iterator[str]:
    expected = ExpectedPool(trace, letters)
    yield f"pool = Pool({trace.num_blocks}, enable_caching={trace.enable_caching})"
    for number, command in enumerate(trace.commands, start=1):
        call = f"pool.{letters.command(command)}"
        misuse = misuse_of(expected.pool, command)
        free_before = list(expected.pool.free)
        answer = _answer(expected, command)
        try:
            note = expected.apply(command, trace.commands[number:])
        except LostTrackError as error:
            raise TargetError(
                f"command {number} cannot be followed on the reference ({error}); use --as pytest"
            ) from error
        if misuse is not None:
            yield from _misuse(call, misuse.words, trace.profile.misuse)
        elif isinstance(command, Allocate) and command.count > len(free_before):
            message = f"{command} was accepted with {len(free_before)} free"
            errors = "(MemoryError, ValueError)"
            yield _RAISES.format(call=call, errors=errors, message=message)
        elif answer is not None:
            yield f"assert {call} {answer}"
        else:
            yield f"{call}  # {note}" if note else call
    yield from _final_state(trace, expected, letters)


def _answer(expected: ExpectedPool, command: Command) -> str | None:
    """The expected answer, as the right side of an assert; None if any answer is allowed."""
    pool = expected.pool
    match command:
        case Allocate(count=count) if 0 <= count <= len(pool.free):
            in_order = pool.profile.eviction != "unspecified"
            return f"== {list(pool.free)[:count]}" if in_order else None
        case Lookup(block_hash=key):
            carriers = sorted(pool.lookup(key))
            if not carriers:
                return "is None"
            return f"in {carriers}" if pool.profile.retention != "may-drop" else None
        case Reset():
            usable = pool.num_blocks - (pool.null_block is not None)
            return f"is {len(pool.free) == usable}"
        case _:
            return None


def _misuse(call: str, reason: str, promise: str) -> Iterator[str]:
    yield f"# misuse: {reason}"
    if promise == "raises":
        yield _RAISES.format(call=call, errors="ValueError", message=f"accepted: {reason}")
    else:
        yield call


def _final_state(trace: Trace, expected: ExpectedPool, letters: KeyLetters) -> Iterator[str]:
    pool = expected.pool
    yield ""
    if trace.violation is not None:
        yield "# What must hold now, as far as the pool shows it."
    yield f"assert pool.num_free() == {len(pool.free)}, pool.num_free()"
    yield 'if hasattr(pool, "free_order"):'
    if pool.profile.eviction == "unspecified":
        yield f"    assert sorted(pool.free_order()) == {sorted(pool.free)}, pool.free_order()"
    else:
        yield f"    assert list(pool.free_order()) == {list(pool.free)}, pool.free_order()"
    counts = {b: len(h) for b, h in pool.holders.items() if b != pool.null_block}
    yield 'if hasattr(pool, "ref_count"):'
    yield f"    for block, count in {counts}.items():"
    yield "        assert pool.ref_count(block) == count, (block, pool.ref_count(block), count)"
    if pool.profile.retention == "may-drop":
        return
    hashes = ", ".join(
        f"{block}: {letters.letter(keys[0]) if keys else None}"
        for block, keys in pool.keys.items()
        if block != pool.null_block
    )
    yield 'if hasattr(pool, "block_hash"):'
    yield f"    for block, block_hash in {{{hashes}}}.items():"
    yield "        assert pool.block_hash(block) == block_hash, (block, pool.block_hash(block))"
    for key, letter in letters.opaque():
        carriers = sorted(pool.lookup(key))
        found = f"in {carriers}" if carriers else "is None"
        yield f"assert pool.lookup({letter}) {found}, pool.lookup({letter})"


def manager_reproducer(trace: Trace) -> str:
    """The text of the script. Raises TargetError where there is no such form."""
    watched = watch(trace, right_target(trace), wanted={len(trace.commands)})
    if watched.left_out:
        raise TargetError(
            f"command {watched.left_out} cannot be followed on the reference; use --as pytest"
        )
    lines = [
        comment(trace),
        "",
        *import_lines(trace, "Manager"),
        "",
        *_manager_calls(trace, watched),
    ]
    return "\n".join([*lines, "", *_manager_final_state(trace, watched.seen[-1])]) + "\n"


def _manager_calls(trace: Trace, watched: Watched) -> Iterator[str]:
    profile = trace.profile
    assert isinstance(profile, ManagerProfile)
    size = int(trace.options["block_size"])
    yield f"manager = Manager({trace.num_blocks}, {size}, enable_caching={trace.enable_caching})"
    for seen in watched.seen[1:]:
        call = f"manager.{_call(seen)}"
        expected = _expected(seen.answer, profile)
        yield call if expected is None else f"assert {call} {expected}"


def _call(seen: Seen) -> str:
    command: Any = seen.command
    method = MANAGER_METHODS[command.verb]
    if isinstance(command, Step):
        return f"step({list(seen.batch)})"
    if seen.chain is not None:
        sequence = "" if isinstance(command, LookupPrefix) else f"{command.seq_id}, "
        keys = f"extra_keys={seen.chain.extra_keys()!r}"
        number = getattr(command, "num_tokens", 0)
        chunk = f", num_tokens={number}" if number else ""
        return f"{method}({sequence}{list(seen.chain.tokens)}, {keys}{chunk})"
    values = (getattr(command, name) for name in command.__slots__)
    shown = [str(list(value) if isinstance(value, tuple) else value) for value in values]
    return f"{method}({', '.join(shown)})"


def _expected(answer: Any, profile: ManagerProfile) -> str | None:
    """The expected answer, as the right side of an assert; None if any answer is allowed."""
    if isinstance(answer, bool):
        return f"is {answer}"
    if isinstance(answer, int):
        return f"== {answer}" if profile.hits == "exact" else f"<= {answer}"
    if profile.admission != "exact":
        return None
    if isinstance(answer, str):
        return f"== {answer!r}"
    return None if answer is None else '!= "later"'


def _manager_final_state(trace: Trace, last: Seen) -> Iterator[str]:
    """What is known of the end; orders and ids only where the profile declares an order."""
    yield "# What must hold now, as far as the manager shows it."
    in_order = trace.profile.eviction != "unspecified"
    for held in last.held:
        for group, table in enumerate(held.tables):
            arguments = f"{held.seq_id}, {group}" if group else f"{held.seq_id}"
            found = f"manager.block_table({arguments})"
            right = (
                f"list({found}) == {list(table)}" if in_order else f"len({found}) == {len(table)}"
            )
            yield f"assert {right}, {found}"
    yield 'if hasattr(manager, "num_free"):'
    yield f"    assert manager.num_free() == {len(last.free)}, manager.num_free()"
    if in_order:
        yield 'if hasattr(manager, "free_order"):'
        yield f"    assert list(manager.free_order()) == {list(last.free)}, manager.free_order()"
        cached = sorted({block for _, blocks in last.index for block in blocks})
        yield 'if hasattr(manager, "is_cached"):'
        yield f"    cached = [b for b in range({trace.num_blocks}) if manager.is_cached(b)]"
        yield f"    assert cached == {cached}, cached"

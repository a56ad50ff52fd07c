"""A manager's trace as a script that calls the target's own methods and needs nothing of Poolproof.

For native managers that are named by file or module. Answers, tables and the state at the end are
compared with those of the specification. What a sequence reads cannot be seen without the shadow
memory: a finding of that kind shows in the script only if an answer or a table is wrong as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from poolproof.certification.manager_watch import Seen, Watched, watch
from poolproof.certification.right_target import right_target
from poolproof.contract.manager_commands import LookupPrefix, Step
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import MANAGER_METHODS
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.report.regression_test import comment
from poolproof.report.reproducer import import_lines

__all__ = ["manager_reproducer"]


def manager_reproducer(trace: Trace) -> str:
    """The text of the script. Raises TargetError where there is no such form."""
    watched = watch(trace, right_target(trace))
    if watched.left_out:
        raise TargetError(
            f"command {watched.left_out} cannot be followed on the reference; use --as pytest"
        )
    lines = [comment(trace), "", *import_lines(trace, "Manager"), "", *_calls(trace, watched)]
    return "\n".join([*lines, "", *_final_state(trace, watched.seen[-1])]) + "\n"


def _calls(trace: Trace, watched: Watched) -> Iterator[str]:
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
    """What must come back, as the right side of an assert; None where it is free."""
    if isinstance(answer, bool):
        return f"is {answer}"
    if isinstance(answer, int):
        return f"== {answer}" if profile.hits == "exact" else f"<= {answer}"
    if profile.admission != "exact":
        return None
    if isinstance(answer, str):
        return f"== {answer!r}"
    return None if answer is None else '!= "later"'


def _final_state(trace: Trace, last: Seen) -> Iterator[str]:
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

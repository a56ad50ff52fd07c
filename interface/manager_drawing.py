"""A manager trace as a table: after each command the free queue, the block tables and the index.

What is drawn is what a run of the trace showed (`manager_watch.py`). Sequences are named A, B, ...
and keys a, b, ..., whose prefixes the legend has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Fork,
    Load,
    LookupPrefix,
    Resume,
    Schedule,
    Step,
    Truncate,
)
from poolproof.contract.trace import Trace
from poolproof.drawing import Drawing, Row, shortened
from poolproof.invariants.wording import sequence_name
from poolproof.key_letters import KeyLetters
from poolproof.manager_watch import Held, Seen, Watched, watch
from poolproof.right_target import right_target
from poolproof.wording import num_blocks_of

__all__ = ["command_words", "draw_manager", "draw_watched"]

HEADINGS = ("#", "command", "free queue", "tables", "index", "note")
RIGHT = "the states are those of a right manager"
SHOWN = (
    "tables, and the free queue where it can be seen, are what the target showed; the index is as "
    "it must be"
)

_MOST_TOKENS = 20


def draw_manager(trace: Trace) -> Drawing:
    """The drawing of a trace by the specification, which needs no target."""
    return draw_watched(trace, watch(trace, right_target(trace)), RIGHT)


def draw_watched(trace: Trace, watched: Watched, caption: str = SHOWN) -> Drawing:
    """The drawing of what a run of the trace showed."""
    letters = KeyLetters()
    failing = -2 if trace.violation is None else trace.violation.command_index
    rows = []
    before: Seen | None = None
    for number, seen in enumerate(watched.seen):
        cells = (shortened([str(b) for b in seen.free]), _tables(seen.held), _index(seen, letters))
        note = _setting(trace) if before is None else "; ".join(_notes(seen, before, letters))
        text = "" if seen.command is None else command_words(seen.command, seen.batch)
        rows.append(Row(number, text, *cells, note, violating=number == failing + 1))
        before = seen
    reached = max(len(watched.seen) - 1, 0)
    rows += [
        Row(number, command_words(command), "?", "?", "?", "", violating=number == failing + 1)
        for number, command in enumerate(trace.commands[reached:], start=reached + 1)
    ]
    lost = None
    if len(trace.commands) > reached:
        lost = f"from command {reached + 1} on the states are not known: it is not legal there"
    legend = [
        (letter, watched.meanings[key])
        for key, letter in letters.opaque()
        if key in watched.meanings
    ]
    return Drawing(tuple(rows), tuple(legend), lost, HEADINGS, caption)


def command_words(command: Command, batch: Sequence[tuple[int, int]] = ()) -> str:
    """The command with sequences by their letters; `batch` is what a step computes."""
    seq_id: int | None = getattr(command, "seq_id", None)
    words = [command.verb if command.verb != "append_tokens" else "append"]
    words += [] if seq_id is None else [sequence_name(seq_id)]
    match command:
        case Step():
            words.append(", ".join(f"{sequence_name(s)} {count}" for s, count in batch))
        case Admit(chain=chain, num_tokens=count) | Load(chain=chain, num_tokens=count):
            words.append(_chain(chain) + (f", {count} of them" if count else ""))
        case LookupPrefix(chain=chain):
            words.append(_chain(chain))
        case AppendTokens(tokens=tokens) | Draft(tokens=tokens):
            words.append(_tokens(tokens))
        case Resume(num_tokens=count):
            words.append(f"{count} tokens" if count else "")
        case Schedule(num_tokens=count) | Accept(num_tokens=count):
            words.append(str(count))
        case Truncate(num_tokens=count):
            words.append(f"to {count}")
        case Fork(child_id=child_id):
            words.append(f"as {sequence_name(child_id)}")
    return " ".join(filter(None, words))


def _chain(chain: TokenChain) -> str:
    words = [_tokens(chain.tokens)]
    words += [f"lora {chain.lora[0]} at {chain.lora[1]}"] if chain.lora else []
    words += [f"salt {chain.salt}"] if chain.salt else []
    words += [f"image {i.identifier} at {i.offset}+{i.length}" for i in chain.images]
    return ", ".join(words)


def _tokens(tokens: Sequence[int]) -> str:
    if len(tokens) > 4 and len(set(tokens)) == 1:
        return f"[{tokens[0]} x {len(tokens)}]"
    if len(tokens) > _MOST_TOKENS:
        head, tail = (" ".join(map(str, part)) for part in (tokens[:8], tokens[-4:]))
        return f"[{head} .. {tail} ({len(tokens)})]"
    return f"[{' '.join(map(str, tokens))}]"


def _tables(held: Sequence[Held]) -> str:
    return "; ".join(map(_table, held)) or "-"


def _table(held: Held) -> str:
    groups = " | ".join(shortened([str(block) for block in table]) for table in held.tables)
    place = " host" if held.place == "host" else ""
    return f"{sequence_name(held.seq_id)}:{place} {groups}"


def _index(seen: Seen, letters: KeyLetters) -> str:
    return shortened([f"{letters.letter(k)}->{','.join(map(str, b))}" for k, b in seen.index])


def _notes(seen: Seen, before: Seen, letters: KeyLetters) -> Iterator[str]:
    """The answer, and the keys that went."""
    answer = seen.answer
    if isinstance(answer, str | bool):
        yield str(answer)
    elif isinstance(answer, int) and (answer or isinstance(seen.command, LookupPrefix)):
        yield f"{answer} tokens reported as cached"
    elif isinstance(answer, list) and answer:
        yield "copies " + ", ".join(f"{source}->{into}" for source, into in answer)
    gone = [key for key, _ in before.index if key not in dict(seen.index)]
    if gone:
        yield f"{letters.names(gone)} gone"


def _setting(trace: Trace) -> str:
    null = trace.profile.null_block
    parts = [num_blocks_of(trace)]
    parts += [f"{null} is null"] if null is not None else []
    parts += [] if trace.enable_caching else ["caching off"]
    return ", ".join(parts)

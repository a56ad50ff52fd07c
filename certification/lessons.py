"""The order in which an unfinished allocator is best written, and what each method serves.

For somebody who fills in a skeleton: a certification names the next method, what it has to do and
which invariants it is there for. docs/lab.md is the path as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LESSONS", "UNFINISHED", "Lesson", "lesson_of"]

UNFINISHED = "unfinished, first look"
"""The one stage of a certification whose target raises NotImplementedError; its note says what to
do next.
"""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One method: how it is called, what it does, and the invariants that it serves."""

    call: str
    what: str
    serves: tuple[str, ...]

    @property
    def method(self) -> str:
        """The method's bare name."""
        return self.call.partition("(")[0]

    @property
    def sentence(self) -> str:
        """What to do next, in one sentence."""
        return f"write {self.call}: {self.what} (serves {', '.join(self.serves)})"


_QUEUE = (
    Lesson("num_free()", "how many blocks stand in the queue", ("OWN",)),
    Lesson("free_order()", "the ids in the queue, head first", ("I1", "ORD")),
    Lesson("popleft()", "take the block at the head out and name it", ("I1", "ORD")),
    Lesson("append(block_id)", "the block joins at the tail", ("I1", "ORD")),
    Lesson(
        "remove(block_id)",
        "the block leaves the queue from wherever it stands, for a cached one that is revived",
        ("I4", "LINK"),
    ),
)
_INDEX = (
    Lesson("insert(key, block_id)", "the block can be found under the key", ("IDX",)),
    Lesson(
        "get(key)", "a block that carries the key, or None; an entry is not made by it", ("IDX",)
    ),
    Lesson(
        "pop(key, block_id)",
        "this one block does not carry the key any more, the others still do: answers the block, "
        "or None where it did not carry the key",
        ("IDX",),
    ),
)
_POOL = (
    Lesson("num_free()", "how many blocks can be allocated now", ("OWN", "ADM")),
    Lesson(
        "allocate(n)",
        "n blocks from the head of the free queue, one reference and no hash each; where fewer are "
        "free raise MemoryError and change nothing",
        ("I1", "I2", "ADM", "ATOM"),
    ),
    Lesson(
        "free(block_ids)",
        "one reference less for each entry; a block that nobody holds now joins the queue",
        ("I1", "OWN", "ORD", "LEAK"),
    ),
    Lesson("cache(block_ids, hashes)", "held, full blocks get their hashes", ("I3", "IDX")),
    Lesson(
        "lookup(block_hash)",
        "a block that carries the hash, or None; what allocate() hands out carries none any more",
        ("IDX", "I4"),
    ),
    Lesson(
        "touch(block_ids)",
        "one more reference for each entry; a free block leaves the queue, wherever it stands, and "
        "keeps its hash",
        ("I4", "OWN"),
    ),
    Lesson("evict(block_ids)", "the blocks lose their hashes, and nothing else", ("IDX",)),
    Lesson("reset()", "every hash goes and True, or False while a block is held", ("ATOM", "IDX")),
)
_MANAGER = (
    Lesson(
        "admit(seq_id, tokens, ...)",
        "take blocks for the tokens and answer how many of them were cached; where they do not fit "
        'now answer "later", where they never will "never", and change nothing',
        ("ADM", "ATOM", "I2"),
    ),
    Lesson("block_table(seq_id)", "the blocks of a sequence, in the order of its tokens", ("I2",)),
    Lesson(
        "finish(seq_id)",
        "its blocks go back, the last first; an unknown sequence is ignored",
        ("I1", "LEAK", "ORD"),
    ),
    Lesson(
        "step(batch)",
        "the scheduled tokens are computed now: full blocks of them can be found from here on",
        ("I3", "DATA", "I4"),
    ),
    Lesson(
        "append(seq_id, tokens)",
        "slots for further tokens; a shared block is copied before it is written",
        ("DATA", "ADM", "ATOM"),
    ),
    Lesson(
        "abort(seq_id)", "the same as finish, in whatever state the sequence is", ("LEAK", "I1")
    ),
    Lesson("preempt(seq_id)", "the blocks go back; admit() brings the sequence back", ("I1", "I4")),
    Lesson(
        "lookup_prefix(tokens, ...)", "how many tokens are cached; nothing changes", ("I4", "ATOM")
    ),
    Lesson("schedule(seq_id, num_tokens)", "slots for the next part of a prompt", ("ADM", "I3")),
    Lesson("fork(seq_id, child_id)", "the child shares what is computed", ("OWN", "DATA")),
    Lesson("truncate(seq_id, num_tokens)", "the tail goes, and the keys over it", ("I3", "IDX")),
    Lesson("draft(seq_id, tokens)", "slots for speculative tokens", ("I3", "ADM")),
    Lesson("accept(seq_id, num_tokens)", "the first drafts are tokens now", ("I3", "DATA")),
    Lesson("load(seq_id, tokens, ...)", "like admit(); a transfer writes the tokens", ("I3",)),
    Lesson("loaded(seq_id)", "the transfer is over, also of a sequence that ended", ("I3", "LEAK")),
    Lesson("swap_out(seq_id)", "the family moves to host blocks", ("OWN", "DATA")),
    Lesson("swap_in(seq_id)", "the family comes back", ("OWN", "DATA")),
    Lesson("reset()", "every key goes and True, or False while a block is held", ("ATOM", "IDX")),
    Lesson("num_free()", "how many blocks nobody holds", ("OWN", "LEAK")),
    Lesson("free_order()", "the free blocks, head first", ("I1", "ORD")),
    Lesson("ref_count(block_id)", "how many sequences hold the block", ("OWN",)),
    Lesson("is_cached(block_id)", "whether the block can be found", ("IDX", "I4")),
)

LESSONS = {"queue": _QUEUE, "index": _INDEX, "pool": _POOL, "manager": _MANAGER}
"""By level, in the order in which the methods are best written."""


def lesson_of(level: str, methods: set[str]) -> Lesson:
    """The first lesson that names one of these methods; one of no lesson comes last."""
    for lesson in LESSONS[level]:
        if lesson.method in methods:
            return lesson
    return Lesson(f"{min(methods)}()", "it raises NotImplementedError", ("CRASH",))

"""What every name and word in a report means, what usually causes it, and which page tells more.

The one source of `poolproof explain` and of docs/glossary.md. Invariants, levels, depths and the
values of profile rows are taken from the code that defines them; the rest is written here. Tests
demand an entry for each name that a report can print.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from poolproof.contract.depth import Depth
from poolproof.contract.level import Level
from poolproof.contract.profile_costs import COSTS, NUMBER
from poolproof.contract.violation import Severity
from poolproof.invariants.catalogue import STATEMENTS

__all__ = [
    "GLOSSARY",
    "KINDS",
    "SEVERITY_MEANINGS",
    "GlossaryEntry",
    "meanings_of",
    "nearest_names",
]


@dataclass(frozen=True, slots=True)
class GlossaryEntry:
    """A name or a word, and what it means.

    `causes` are what usually leads to it, `values` those of a row with what each costs, `page` is
    a page of the manual with its section.
    """

    name: str
    kind: str
    meaning: str
    causes: str = ""
    values: tuple[tuple[str, str], ...] = ()
    page: str = ""


KINDS = {
    "invariant": "Invariants",
    "severity": "Severities",
    "level": "Levels",
    "depth": "Depths",
    "verdict": "Verdicts",
    "row": "Rows of a profile",
    "word": "Words",
}
"""The kinds of entries, and how they are called together."""

SEVERITY_MEANINGS: Mapping[Severity, str] = {
    Severity.WRONG_DATA_OF_ANOTHER: "a request reads or overwrites KV of another one",
    Severity.WRONG_DATA_OF_ONES_OWN: "a request reads KV that is not of its own tokens, or that "
    "nobody has computed",
    Severity.STALL: "a request, or the whole server, waits forever",
    Severity.CRASH: "a legal call raises, exits or gives a meaningless answer, or a later one will",
    Severity.LEAK: "blocks that nobody holds and that cannot be allocated: capacity that is gone "
    "until the server restarts",
    Severity.FALSE_REFUSAL: "a request that fits, or is allowed, is refused; no block is lost",
    Severity.LOST_HIT: "cached KV is not found and is computed again",
    Severity.ORDER: "free blocks are reused in a different order than the profile declares",
    Severity.EVENTS: "a reader of the events ends up with a different index than the pool",
    Severity.OTHER_BITS: "a kernel rounds the same numbers otherwise in another place or batch; "
    "each output is within the bound of dense attention",
    Severity.BOOKKEEPING: "the books differ from what they could or should say, and no read shows "
    "it",
}

_CAUSES_OF_INVARIANTS = {
    "I1": "a hit that takes a block out of nobody's hands and leaves it in the queue; a free that "
    "puts a block back while a second reference lives; a removal that forgets one end of the list",
    "I2": "allocating by counting up instead of from the queue; a double free that was let pass; a "
    "sanity check that is an assert and is switched off",
    "I3": "caching a table entry without looking whether it is the null block; registering a block "
    "when it is taken and not when it is full",
    "I4": "a free that clears the hash; an eviction that takes more than it needs; a reset that "
    "forgets the blocks in use",
    "OWN": "one increment for a list in which a block stands twice; a counter that is kept beside "
    "the queue and not updated on one path, mostly an error path or a preemption",
    "LINK": "removing from the middle without resetting the removed block's links; appending a "
    "block that is in the list already",
    "IDX": "reusing a block without taking its hash out of the index; two blocks of one content "
    "where the index knows one, and evicting either removes the entry",
    "DATA": "a key that leaves out what the KV depends on (the parent, an adapter, an image, the "
    "tail of a block); publishing a block before the step that computes it; a table that still "
    "names a block which was given back",
    "ORD": "giving back from the front where the profile says from the tail; a set where a queue "
    "is meant; a hit that does not renew a block's place",
    "ADM": "counting cached blocks as free although the hit is about to take them; rounding up "
    "twice; a check that looks at one cache group of several",
    "ATOM": "changing references or the queue first and looking whether it fits afterwards, "
    "without undoing it",
    "LEAK": "an end, an abort or a preemption that gives back the table but not the blocks "
    "reserved beyond it",
    "EVT": "an event that is sent where a block is evicted and not where it is overwritten; one "
    "event for a hash of which there are several copies",
    "PLAN": "counting drafts that were rejected; planning a request again that is already in "
    "flight; "
    "a budget that is checked before the last addition",
    "OUT": "delivering the answer of a step that was preempted meanwhile; drafts accepted past the "
    "stop token; an end that is noticed one step late",
    "LIVE": "a request that waits for blocks which only it could give back; a queue whose head "
    "never "
    "fits and that nobody overtakes; a transfer whose end nobody hears",
    "MISUSE": "no check of what is passed in, or one that comes after the first change",
    "CRASH": "an index into an empty list, a key that is removed twice, an assert about a case "
    "that "
    "is legal, a loop over links that form a circle",
}

_CAUSES_OF_SEVERITIES = {
    Severity.WRONG_DATA_OF_ANOTHER: "IDX, I1, I2 and DATA lead here; nothing crashes, and the "
    "answer looks plausible",
    Severity.WRONG_DATA_OF_ONES_OWN: "a block that is read before it is written, or is found under "
    "a key that says too little",
    Severity.STALL: "LIVE, or a false refusal that is asked again forever",
}

_PAGES_OF_LEVELS = {
    Level.QUEUE: "contract.md#other-verbs",
    Level.INDEX: "contract.md#other-verbs",
    Level.POOL: "contract.md",
    Level.MANAGER: "managers.md",
    Level.ENGINE: "engines.md",
}

_LEVELS = {
    Level.QUEUE: "the free queue: block ids in the order in which they are handed out",
    Level.INDEX: "the prefix index: which blocks carry a key",
    Level.POOL: "blocks with owners and hashes, over a queue and an index",
    Level.MANAGER: "sequences of tokens over blocks: admission, growth, forks, preemption, the end",
    Level.ENGINE: "requests that are scheduled over sequences: all of a server but the forward "
    "pass",
}

_DEPTHS = {
    Depth.QUICK: "under 30 s: for each push, and while you write",
    Depth.STANDARD: "about 2 minutes: for a pull request",
    Depth.DEEP: "as long as it takes: before a release, or over night",
}

_VERDICTS = {
    "HOLDS": "no counted run broke an invariant, planted bugs were caught, and the situations that "
    'bugs need did occur. Not a proof: see "not covered" in the certificate. Exit status 0',
    "REFUSED": "a violation was found that is neither accepted nor in the baseline, or an accepted "
    "one no longer fails. Exit status 1",
    "INCONCLUSIVE": "the run cannot say either: a planted bug was missed, a situation never "
    "occurred, a stage was cut short. Exit status 2",
}

_ROWS_OF_POOLS = {
    "null_block": "the block that is never handed out, to which empty table entries point",
    "eviction": "where a block goes in the free queue when its last reference is given back",
    "duplicates": "how many blocks may carry one hash, and which of them keeps it",
    "recache": "what caching a block does that has a hash already",
    "null_in_lists": "what the null block in a list of blocks means",
    "repeats_in_free": "whether one call may give back several references to a block",
    "keys": "how much a hash covers: whole blocks, parts of them, or tokens beyond",
    "retention": "how long a cached block that nobody holds is found",
    "events": "which events tell a reader what is in the index",
    "misuse": "what becomes of a call that the contract forbids",
    "same_step_hit": "whether a prefix is found within the step that writes it",
    "hash_bytes": "how long hashes are",
}

_ROWS_OF_MANAGERS = {
    "publishes": "when the key of a full block can be found",
    "hits": "whether the longest cached prefix has to be found",
    "index": "what decides whether a hit or a shown key is right: what is read, or the keys",
    "full_hit": "whether a whole prompt may come from the cache",
    "reserves": "for what an admission takes blocks: what is scheduled, or the whole sequence",
    "admission": "whether what fits may be refused",
    "never": "whether what can never fit is told apart from what has to wait",
    "release_order": "in which order a sequence gives its blocks back",
    "uncached_order": "the same with caching off",
    "group_order": "which of several cache groups gives back first",
    "frees": "when what is given back can be taken again",
    "finish_again": "what ending a sequence twice does",
    "window_blocks": "what becomes of a block that slid out of the window",
    "tables": "whether a published duplicate may be replaced in a table",
    "held_blocks": "whether a cached block that a sequence holds is shared with others",
    "keyed": "which blocks get a key",
    "states": "where a recurrent state is kept",
    "collisions": "whether a hit is checked by content, or its hash trusted",
    "sampled": "when a manager is told the token that a step samples",
    "watermark_blocks": "blocks that an admission leaves free",
    "generation_tokens": "slots that an admission takes for the generation",
    "lookahead_tokens": "slots beyond the scheduled tokens",
    "proof_blocks": "cached blocks that must follow a hit",
    "prior_sightings": "how often a content is seen before a block of it gets a key",
    "host_blocks": "blocks in the memory of the host",
    "max_tokens": "the most tokens of a sequence; 0: no limit",
    "max_sequences": "the most sequences that hold blocks at once; 0: no limit",
    "checkpoint_tokens": "how far checkpoints lie apart; 0: there are none",
    "hash_tokens": "how far the ends of hits lie apart inside a block; 0: hits are of whole blocks",
    "state_blocks": "blocks for states beyond those of the positions, so that there can be drafts",
    "groups": "the cache groups: each a kind (full, sliding, chunked, state), a window, a block "
    "size",
}

_ROWS_OF_ENGINES = {
    "policy": "whether priorities are drawn; nothing is judged by it",
    "max_batch_tokens": "the most positions of a step",
    "max_running": "the most requests of a step",
    "max_request_tokens": "the most tokens of a request; 0: as many as the blocks hold",
    "steps_in_flight": "steps that may be planned before the first is answered",
    "draft_tokens": "the most drafts of a request in a step",
    "max_adapters": "the most different LoRA adapters in a step; 0: any number",
    "image_tokens": "the most positions of an image in a prompt; 0: prompts have no images",
    "encoder_cache_tokens": "positions of images whose encoder outputs the worker keeps",
    "max_encoder_tokens": "the most positions of images that are encoded in a step; 0: any number",
    "reset": "whether a reset waits until nobody holds a block, or takes the blocks of all that "
    "run",
    "spare_tokens": "slots that a request may take beyond its tokens and drafts",
    "headroom_percent": "per cent of all blocks that may be kept free of a request that is let in",
    "instances": "servers, each with its part of the blocks, that serve a request in turn",
    "ranks": "workers that share every step, each with a memory of its own",
    "stale_outputs": "what becomes of a token sampled for a request that was preempted meanwhile",
    "cancelled_outputs": "what may still come of a request after its cancel",
    "prefix_hits": "whether there is a prefix cache",
    "preemptions": "whether a request that runs can lose its blocks",
    "transfers": "whether a transfer may be lost",
    "transfer_order": "in which order transfers end",
    "lost_transfers": "whether a transfer that is lost may have moved some of its blocks",
    "notices": "whether an engine may be told again that a transfer has ended",
    "answers": "whether a step may be answered before as many are planned as may be in flight",
    "state_moves": "who says where recurrent states stand",
    "draft_states": "behind which drafts a step can leave a state",
    "failed_loads": "whether a request may end without a token because its load failed",
}

_WORDS = {
    "assumed": (
        "rows of the profile that the target does not state; each has its first value",
        "contract.md#profile",
    ),
    "baseline": (
        "an older certificate as JSON: what it shows does not fail this run",
        "certify.md#baseline",
    ),
    "campaign": (
        "a search for states that nobody has seen, kept in a folder from night to night",
        "campaigns.md",
    ),
    "canary": (
        (
            "a known bug that is planted under the target's profile before it is driven: if one "
            "is not "
            "caught, the checks say too little about this target"
        ),
        "certify.md#stages",
    ),
    "careful run": (
        (
            "a run that also watches lists that were answered, and a second instance that must not "
            "change"
        ),
        "what-a-verdict-says.md#careful-runs",
    ),
    "consequence": (
        (
            "the wrong read to which a finding leads, where one was found; without it, wrong data "
            "is "
            "feared and not shown"
        ),
        "managers.md#how-a-step-is-judged",
    ),
    "facts": (
        (
            "situations that bugs need, such as the queue emptied, an eviction, a refusal: a pass "
            "in "
            "which one never happened is inconclusive"
        ),
        "certify.md#what-must-have-happened",
    ),
    "fingerprint": (
        (
            "the name of a finding, f- and eight digits: the same for every seed and every naming "
            "of "
            "blocks and hashes"
        ),
        "traces.md#fingerprints",
    ),
    "form": (
        "one bug often breaks several invariants or operations; each is a form of one finding",
        "certify.md#one-bug-one-finding",
    ),
    "hardening": (
        "misuse that the profile leaves undefined is tried as well; it never fails a run",
        "certify.md#hardening",
    ),
    "known": (
        "findings that were examined and accepted, each with a link, a reason and a last day",
        "certify.md#known-findings",
    ),
    "layout": (
        "one way in which a manager or engine is set up: its cache groups, its policy",
        "managers.md#the-profile-of-a-manager",
    ),
    "never called": (
        "public methods of the class that no run entered: nothing is said about them",
        "what-a-verdict-says.md",
    ),
    "not covered": (
        (
            "what a pass leaves open, in sentences: sizes that were not tried, methods that are "
            "not "
            "there to look inside"
        ),
        "what-a-verdict-says.md#holds-is-not-a-proof",
    ),
    "orbit": (
        (
            "all states of a pool that differ only in the names of blocks and hashes: one of them "
            "is "
            "visited for all"
        ),
        "exploration.md#the-transition-relation",
    ),
    "plain driver": (
        "long random runs that follow the grammar of legal calls, drawn by a seeded generator",
        "certify.md#stages",
    ),
    "production sizes": (
        "runs at the sizes of servers, where bugs begin that small pools do not have",
        "what-a-verdict-says.md#why-there-are-production-sizes",
    ),
    "profile": (
        "where correct allocators differ: a class states its rows, and is checked under them",
        "contract.md#profile",
    ),
    "ruled out": (
        "legal designs that look alike and were tried: the finding is none of them",
        "certify.md#one-bug-one-finding",
    ),
    "ruler": (
        (
            "the checks themselves: before a target is measured, planted bugs (canaries) show "
            "that the "
            "checks catch something under its profile"
        ),
        "certify.md#stages",
    ),
    "shape": (
        (
            "the published interface that a class has: native, that of vLLM V1, of nano-vLLM ...; "
            "it "
            "says which adapter drives it"
        ),
        "contract.md#vllms-shape",
    ),
    "shortest": (
        (
            "how short the trace is known to be: breadth-first means that no shorter one fails in "
            "this "
            "way within the bounds named"
        ),
        "exploration.md",
    ),
    "specimen": (
        "a real bug of a public engine, planted in a clean allocator as the smallest change",
        "bugs.md#every-bug",
    ),
    "state machine": (
        "runs that Hypothesis draws; they look elsewhere than the plain driver",
        "certify.md#stages",
    ),
    "tape": (
        "a run as bytes: two for each choice of the grammar. The same tape gives the same run",
        "campaigns.md#tapes",
    ),
    "target": (
        "what is certified: a built-in name, a class in a file or module, or a program",
        "certify.md",
    ),
    "trace": (
        "a run as a file: the set-up, the commands, what broke. `poolproof replay` runs it again",
        "traces.md",
    ),
    "weak hashes": (
        "runs in which a manager's hashes are cut to a few bits, so that they collide",
        "certify.md#managers",
    ),
}


def _rows() -> list[GlossaryEntry]:
    pages = (
        (_ROWS_OF_POOLS, "contract.md#profile"),
        (_ROWS_OF_MANAGERS, "managers.md#the-profile-of-a-manager"),
        (_ROWS_OF_ENGINES, "engines.md#the-contract"),
    )
    return [
        GlossaryEntry(name, "row", meaning, values=_values(name), page=page)
        for rows, page in pages
        for name, meaning in rows.items()
    ]


def _values(row: str) -> tuple[tuple[str, str], ...]:
    """What each value costs whoever states it; the rows of engines have no such table."""
    costs = COSTS.get(row, {})
    return tuple(
        ("a number" if value is NUMBER else str(value), cost.sentence)
        for value, cost in costs.items()
    )


def _entries() -> list[GlossaryEntry]:
    made = [
        GlossaryEntry(
            code,
            "invariant",
            says,
            _CAUSES_OF_INVARIANTS[code],
            page=f"invariants.md#{code.lower()}",
        )
        for code, says in STATEMENTS.items()
    ]
    made += [
        GlossaryEntry(
            severity.value,
            "severity",
            SEVERITY_MEANINGS[severity],
            _CAUSES_OF_SEVERITIES.get(severity, ""),
            page="certify.md#severities",
        )
        for severity in Severity
    ]
    made += [
        GlossaryEntry(str(level), "level", says, page=_PAGES_OF_LEVELS[level])
        for level, says in _LEVELS.items()
    ]
    made += [
        GlossaryEntry(str(depth), "depth", says, page="certify.md#depths")
        for depth, says in _DEPTHS.items()
    ]
    made += [
        GlossaryEntry(name, "verdict", says, page="certify.md#verdict-and-exit-status")
        for name, says in _VERDICTS.items()
    ]
    made += _rows()
    made += [GlossaryEntry(name, "word", says, page=page) for name, (says, page) in _WORDS.items()]
    return made


GLOSSARY: tuple[GlossaryEntry, ...] = tuple(_entries())
"""Every entry; two may have one name, as the level `index` and the row of a manager's profile."""


def meanings_of(name: str) -> tuple[GlossaryEntry, ...]:
    """The entries of a name, however it is written: `idx`, `weak-hashes`, `Null Block`.

    `hits=sound` is one value of a row, and `sound` alone that of each row that has it.
    """
    named, is_value, value = name.partition("=")
    entries = [entry for entry in GLOSSARY if _plain(entry.name) == _plain(named)]
    if is_value:
        rows = [entry for entry in entries if entry.kind == "row"]
        return tuple(_with_value(entry, value) or entry for entry in rows)
    if not entries:
        entries = [cut for entry in GLOSSARY if (cut := _with_value(entry, name))]
    return tuple(entries)


def _with_value(entry: GlossaryEntry, value: str) -> GlossaryEntry | None:
    """The entry of a row, cut to one value; None if it does not have it."""
    values = tuple(each for each in entry.values if _plain(each[0]) == _plain(value))
    return replace(entry, values=values) if values else None


def nearest_names(name: str) -> list[str]:
    """The names that are most like one that there is not."""
    plain = {_plain(entry.name): entry.name for entry in GLOSSARY}
    return [plain[close] for close in difflib.get_close_matches(_plain(name), plain, n=3)]


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", " ", name).strip().lower()

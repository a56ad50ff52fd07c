"""How violations name blocks, owners and keys, so that all sentences read alike."""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.content import ContentKey
from poolproof.contract.observation import PoolLedger
from poolproof.contract.outside import shown
from poolproof.contract.prefix_words import Prefix, shortened

__all__ = ["block_list", "copy_list", "key_name", "number_of_blocks", "owners", "sequence_name"]


_MOST_SEQUENCES = 10**9


def owners(known: PoolLedger, block: int) -> str:
    """Who holds a block: "command #3", "commands #3 and #5", "sequence A", or "nobody".

    At most six are named.
    """
    by_name = known.owner_noun == "sequence"
    names = [sequence_name(n) if by_name else f"#{n}" for n in known.holders[block]]
    if not names:
        return "nobody"
    if len(names) == 1:
        return f"{known.owner_noun} {names[0]}"
    if len(names) > 6:
        return f"{len(names)} {known.owner_noun}s ({', '.join(names[:6])}, ...)"
    return f"{known.owner_noun}s {', '.join(names[:-1])} and {names[-1]}"


def sequence_name(seq_id: int) -> str:
    """A sequence in a sentence: A, B, ..., Z, A1, B1, ...; a number that nobody gave as it is."""
    if not 0 <= seq_id < _MOST_SEQUENCES:
        return str(seq_id)
    round_number, letter = divmod(seq_id, 26)
    return chr(ord("A") + letter) + (str(round_number) if round_number else "")


def block_list(blocks: Sequence[int]) -> str:
    """Blocks with their verb, "block 3 is" or "blocks 3 and 5 are"; at most six are named."""
    if len(blocks) == 1:
        return f"block {blocks[0]} is"
    if len(blocks) > 6:
        return f"{len(blocks)} blocks ({', '.join(map(str, blocks[:6]))}, ...) are"
    return f"blocks {', '.join(map(str, blocks[:-1]))} and {blocks[-1]} are"


def copy_list(pairs: Sequence[tuple[int, int]]) -> str:
    """Ordered copies, each as source and destination: "0->2, 2->1"."""
    return ", ".join(shortened([f"{source}->{into}" for source, into in pairs])) or "none"


def number_of_blocks(count: int, verb: str = "") -> str:
    """A number of blocks, with a verb in the plural if one is given: "1 block is", "3 blocks"."""
    singular = {"are": "is", "were": "was", "have": "has"}
    if count == 1:
        return f"1 block {singular.get(verb, verb)}".rstrip()
    return f"{count} blocks {verb}".rstrip()


def key_name(key: object, beside: object = None) -> str:
    """A key in a sentence: the first eight digits of a hash, or the tokens of a content key.

    Another hash that the sentence names adds what tells them apart or makes them alike: the first
    byte that differs after the same beginning, or the end that both have.

    A target may show anything at all where a hash belongs; that is named as it is.
    """
    if key is None:
        return "no hash"
    if isinstance(key, ContentKey):
        return f"the key of <{Prefix.of_key(key).words()}> in group {key.group}"
    if isinstance(key, bytes):
        return f"hash {key.hex()[:8]}{_told_from(key, beside)}"
    return f"{shown(key, 80)}, which is no hash that was ever given"


def _told_from(key: bytes, other: object) -> str:
    if not isinstance(other, bytes) or other == key:
        return ""
    if other[:4] != key[:4]:
        return f"..{key[-4:].hex()}" if other[-4:] == key[-4:] else ""
    place = next((i for i, pair in enumerate(zip(key, other, strict=False)) if pair[0] != pair[1]),
                 min(len(key), len(other)))  # fmt: skip
    return f".. with {key[place : place + 1].hex() or 'its end'} at byte {place}"

"""Short names for block hashes: a, b, c ... in the order in which a trace first names them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from poolproof.contract.commands import CacheChain, CachePartial, Command, LookupChain
from poolproof.contract.content import ContentKey, Key, TokenChain
from poolproof.contract.index_commands import IndexKey, index_key_text
from poolproof.contract.prefix_words import Prefix, listed, shortened
from poolproof.invariants.wording import key_name

__all__ = ["KeyLetters"]

_MOST_IN_A_LIST = 16


class KeyLetters:
    """Gives each key, or prefix, a letter; `legend` says what each letter stands for."""

    def __init__(self) -> None:
        self._letters: dict[Key | Prefix | IndexKey, str] = {}

    def letter(self, key: Key | Prefix | IndexKey) -> str:
        """The key's name: a to z, then a1 to z1 and so on."""
        if key not in self._letters:
            turn, place = divmod(len(self._letters), 26)
            self._letters[key] = chr(ord("a") + place) + (str(turn) if turn else "")
        return self._letters[key]

    def names(self, keys: Iterable[Key | Prefix]) -> str:
        """The letters of several keys, with spaces between."""
        return " ".join(map(self.letter, keys))

    def command(self, command: Command) -> str:
        """The command as a call, its hashes by their letters."""
        arguments = ", ".join(self._shown(getattr(command, f.name)) for f in fields(command))
        return f"{command.verb}({arguments})"

    def name_keys_of(self, command: Command, block_size: int) -> None:
        """Give letters to the keys that the command names, also where it names them by tokens."""
        match command:
            case CacheChain(chain=chain, block_ids=ids, num_cached=cached, group=group):
                for position in range(cached, len(ids)):
                    if (position + 1) * block_size <= len(chain.tokens):
                        self.letter(chain.prefix((position + 1) * block_size, group))
            case CachePartial(chain=chain, num_tokens=num_tokens, group=group):
                self._name_prefix(chain, num_tokens, group)
            case LookupChain(chain=chain, num_tokens=num_tokens, groups=groups):
                for group in groups:
                    self._name_prefix(chain, num_tokens, group)
            case _:
                self.command(command)

    def legend(self) -> list[tuple[str, str]]:
        """Each letter and what it stands for, in order."""
        named = list(self._letters.items())
        return [(letter, _meaning(key, _alike(key, self._letters))) for key, letter in named]

    def opaque(self) -> list[tuple[bytes, str]]:
        """The keys that are plain hashes, each with its letter."""
        return [(key, letter) for key, letter in self._letters.items() if isinstance(key, bytes)]

    def prefixes(self) -> list[tuple[Prefix, str]]:
        """The prefixes among them, each with its letter."""
        return [(key, letter) for key, letter in self._letters.items() if isinstance(key, Prefix)]

    def _name_prefix(self, chain: TokenChain, num_tokens: int, group: int) -> None:
        if 0 < num_tokens <= len(chain.tokens):
            self.letter(chain.prefix(num_tokens, group))

    def _shown(self, value: Any) -> str:
        if isinstance(value, bytes | ContentKey):
            return self.letter(value)
        if isinstance(value, TokenChain):
            return f"<{_chain_words(value)}>"
        if isinstance(value, tuple):
            shown = list(map(self._shown, value))
            if len(shown) > _MOST_IN_A_LIST and len(set(shown)) == 1:
                return f"[{shown[0]}] * {len(shown)}"
            return listed(shown, _MOST_IN_A_LIST)
        return str(value)


def _chain_words(chain: TokenChain) -> str:
    words = [" ".join(shortened(chain.tokens, "tokens"))]
    words += [f"lora {chain.lora[0]}"] if chain.lora else []
    words += [f"salt {chain.salt}"] if chain.salt else []
    words += [f"image {image.identifier} at {image.offset}" for image in chain.images]
    return ", ".join(words)


def _alike(key: Key | Prefix | IndexKey, others: Iterable[Key | Prefix | IndexKey]) -> bytes | None:
    """Another hash with the same four bytes at its beginning, or else at its end."""
    if not isinstance(key, bytes):
        return None
    hashes = [other for other in others if isinstance(other, bytes) and other != key]
    alike = [other for other in hashes if other[:4] == key[:4]]
    alike += [other for other in hashes if other[-4:] == key[-4:]]
    return alike[0] if alike else None


def _meaning(key: Key | Prefix | IndexKey, beside: bytes | None = None) -> str:
    if isinstance(key, bytes):
        return key_name(key, beside)
    if isinstance(key, tuple | int):
        return f"key {index_key_text(key)}"
    if isinstance(key, Prefix):
        return f"tokens {key.words()}"
    words = ["tokens " + " ".join(map(str, key.tokens))]
    words += [f"lora {key.lora[0]} at {key.lora[1]}"] if key.lora else []
    words += [f"salt {key.salt}"] if key.salt else []
    words += [f"image {identifier} at {offset}" for identifier, offset in key.images]
    words += [f"group {key.group}"] if key.group else []
    return ", ".join(words)

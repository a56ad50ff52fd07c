"""Names the tokens of an engine's requests, for engines that know no salts and no adapters.

What is told to the engine are names (`token_names.py`); what it gives to users is turned back. The
stop token keeps its number: an engine must know it, and nothing is computed behind it.
"""

from __future__ import annotations

from collections.abc import Iterable

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import STOP_TOKEN
from poolproof.targets.token_names import TokenNames

__all__ = ["NamedRequests"]


class NamedRequests:
    """The setting of each request, and what every name stands for."""

    def __init__(self, *, enable_caching: bool, first_name: int | None = None) -> None:
        options = {} if first_name is None else {"first_name": first_name}
        self._names = TokenNames(enable_caching=enable_caching, **options)
        self._settings: dict[int, tuple[object, ...]] = {}
        self._tokens: dict[int, int] = {}

    def submit(self, request_id: int, chain: TokenChain) -> list[int]:
        """The names of a prompt."""
        keys = chain.extra_keys()
        setting = self._settings[request_id] = self._names.setting(keys)
        named = self._names.named(chain.tokens, setting, keys)
        self._tokens.update(zip(named, chain.tokens))
        return named

    def sampled(self, request_id: int, token: int) -> int:
        """The name of a token that was sampled for a request."""
        if token == STOP_TOKEN:
            return token
        (name,) = self._names.named([token], self._settings[request_id])
        self._tokens[name] = token
        return name

    def given(self, names: Iterable[int]) -> list[int]:
        """The tokens behind names; what is no name is left as it is."""
        return [self._tokens.get(name, name) for name in names]

"""The contract of a consumer of KV events: an index as routers have, of which engine has what.

A native consumer is any class with these methods; nothing has to be imported. It is built as
`Index(block_size)`. A batch is a mapping:

    {"engine": "a", "sequence": 7, "replayed": False, "events": [
        {"type": "stored", "hashes": [...], "parent": None, "tokens": [...], "block_size": 4,
         "medium": "GPU", "lora": None, "salt": None},
        {"type": "removed", "hashes": [...], "medium": "GPU"},
        {"type": "cleared"},
    ]}

The sequence numbers of an engine rise by one. A gap is a loss; a live batch with a number that was
had before is of an engine that has restarted, with nothing in its cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from poolproof.contract.errors import OptionError
from poolproof.contract.outside import shown
from poolproof.contract.target import TargetError

__all__ = ["CONSUMER_METHODS", "ConsumerProfile", "ConsumerTarget", "consumer_profile_of"]

CONSUMER_METHODS = ("apply", "lookup")
MEDIA = ("GPU", "CPU")


class ConsumerTarget(Protocol):
    """A native consumer.

    `apply` answers None, or the number of the first batch that it wants to be sent again: what the
    engine still has of them comes at once, with "replayed", before anything else of that engine.
    `lookup` answers for each engine how many blocks from the beginning of the tokens it has;
    engines without any may be left out. `profile` is optional.
    """

    profile: dict[str, Any]

    def apply(self, batch: Mapping[str, Any], /) -> int | None: ...
    def lookup(
        self, tokens: Sequence[int], *, lora: str | None = None, salt: str | None = None
    ) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True)
class ConsumerProfile:
    """How a consumer differs from others that are right.

    media: the media whose blocks it counts: "GPU" alone, or "GPU" and "CPU".
    """

    media: tuple[str, ...] = ("GPU",)

    @classmethod
    def from_mapping(cls, declared: Any) -> ConsumerProfile:
        """The profile that a class declares. Raises OptionError."""
        if not isinstance(declared, Mapping) or not set(declared) <= {"media"}:
            raise OptionError(
                f"the profile of a consumer is a mapping with media, not {shown(declared)}"
            )
        media = declared.get("media", ("GPU",))
        if isinstance(media, str) or not media or not set(media) <= set(MEDIA):
            raise OptionError(f"media lists some of {', '.join(MEDIA)}, not {shown(media)}")
        return cls(tuple(media))


def consumer_profile_of(cls: type) -> ConsumerProfile:
    """The profile of a class. Raises TargetError where it is no consumer."""
    missing = [name for name in CONSUMER_METHODS if not callable(getattr(cls, name, None))]
    if missing:
        raise TargetError(
            f"{cls.__name__} lacks {', '.join(f'{name}()' for name in missing)}, which a consumer "
            "of KV events needs; docs/live.md shows one"
        )
    try:
        return ConsumerProfile.from_mapping(getattr(cls, "profile", {}))
    except OptionError as error:
        raise TargetError(f"{cls.__name__}: {error}") from error

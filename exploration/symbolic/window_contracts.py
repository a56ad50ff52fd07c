"""Contracts of the kinds of attention: what is skipped is read by nobody, and all of it is skipped.

The token at position t reads position p, at most t, where the kind says; after n computed tokens
those from n on are still to come. One position too many frees a block in use (imp#967), one too
few keeps it for ever.
"""

from __future__ import annotations

from poolproof.impl.kv_cache_group import ChunkedLocal, RecurrentState, SlidingWindow

__all__ = [
    "chunk_keeps_what_is_read",
    "chunk_skips_what_is_not",
    "peak_covers_a_window_anywhere",
    "state_keeps_the_last_token",
    "window_keeps_what_is_read",
    "window_skips_what_is_not",
]


def window_keeps_what_is_read(window: int, computed: int, token: int, position: int) -> int:
    """What a later token reads is not skipped.

    pre: window >= 1 and computed >= 0 and token >= computed
    pre: position >= 0 and token - window < position <= token
    post: _ <= position
    """
    return SlidingWindow(window=window).num_skipped_tokens(computed)


def window_skips_what_is_not(window: int, computed: int) -> int:
    """The first position that is kept, if it is there already, is read by the next token.

    pre: window >= 1 and computed >= 0
    post: 0 <= _ <= computed
    post: computed - window < _
    """
    return SlidingWindow(window=window).num_skipped_tokens(computed)


def chunk_keeps_what_is_read(computed: int, token: int, position: int) -> int:
    """What a later token of the same chunk of 8 reads is not skipped.

    pre: 0 <= computed <= token and 0 <= position <= token
    pre: token // 8 == position // 8
    post: _ <= position
    """
    return ChunkedLocal(chunk_size=8).num_skipped_tokens(computed)


def chunk_skips_what_is_not(computed: int) -> int:
    """The first position that is kept begins the chunk of the next token (chunks of 8).

    pre: computed >= 0
    post: _ <= computed < _ + 8
    post: _ % 8 == 0
    """
    return ChunkedLocal(chunk_size=8).num_skipped_tokens(computed)


def state_keeps_the_last_token(computed: int) -> int:
    """The state after the last computed token is kept, and no other.

    pre: computed >= 1
    post: _ == computed - 1
    """
    return RecurrentState().num_skipped_tokens(computed)


def peak_covers_a_window_anywhere(window: int, start: int) -> int:
    """A window with the token in flight touches at most the peak, wherever it starts (blocks of 4).

    pre: 1 <= window <= 64 and start >= 0
    post: (start + window - 1) // 4 - start // 4 + 1 <= _
    """
    return SlidingWindow(window=window).peak_blocks(4, 1, start + window)

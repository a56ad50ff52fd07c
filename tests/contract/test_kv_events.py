"""KV events from the wire: both forms, what is not known, and what is no batch."""

from __future__ import annotations

import pytest

from poolproof.contract.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventError,
    batch_from,
)


def test_maps_with_a_type_are_read():
    batch = batch_from(
        7,
        [
            1.5,
            [
                {
                    "type": "BlockStored", "block_hashes": [b"a", 2], "parent_block_hash": None,
                    "token_ids": [1, 2, 3, 4], "block_size": 2, "lora_id": None, "medium": "GPU",
                    "lora_name": "x", "extra_keys": [None, ["salt"]], "group_idx": 1,
                    "kv_cache_spec_kind": "sliding_window", "session_id": "s",
                },
                {"type": "BlockRemoved", "block_hashes": [b"a"], "medium": "CPU", "group_idx": 1},
                {"type": "AllBlocksCleared"},
                {"type": "SomethingNew", "x": 1},
            ],
            3,
        ],
    )  # fmt: skip
    assert (batch.sequence, batch.rank, batch.time_s) == (7, 3, 1.5)
    assert batch.events == (
        BlockStored(
            (b"a", 2), None, (1, 2, 3, 4), 2, "x", "GPU", 1, "sliding_window", (None, ("salt",))
        ),
        BlockRemoved((b"a",), "CPU", 1),
        AllBlocksCleared(),
    )


def test_batches_of_sglang_are_read():
    """As `sglang.srt.disaggregation.kv_events` of 0.5.23 encodes them."""
    stored = {
        "type": "BlockStored", "block_hashes": [1, 2], "parent_block_hash": None,
        "token_ids": [5, 6, 7, 8], "block_size": 2, "lora_id": None, "medium": "CPU_PINNED",
        "cache_salt": "s", "session_id": "x",
    }  # fmt: skip
    batch = batch_from(4, [1.0, [stored, {"type": "BlockRemoved", "block_hashes": [1]}], 2])
    assert batch.rank == 2
    assert batch.events == (
        BlockStored((1, 2), None, (5, 6, 7, 8), 2, None, "CPU_PINNED"),
        BlockRemoved((1,)),
    )


def test_arrays_of_older_releases_are_read():
    batch = batch_from(0, [0.0, [["BlockStored", [1], 9, [5, 6], 2, 4], ["BlockRemoved", [1]]]])
    assert batch.events == (BlockStored((1,), 9, (5, 6), 2, "4"), BlockRemoved((1,)))


def test_a_batch_that_is_a_map_is_read():
    batch = batch_from(0, {"ts": 1, "events": [{"type": "AllBlocksCleared"}]})
    assert batch.events == (AllBlocksCleared(),)


@pytest.mark.parametrize(
    "value", [None, 3, b"x", [], [1.0], [1.0, "events"], {"ts": 0}, {"other": []}]
)
def test_what_is_no_batch_says_so(value):
    with pytest.raises(EventError, match="batch 5 is no KVEventBatch"):
        batch_from(5, value)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "BlockRemoved"},
        {"type": "BlockRemoved", "block_hashes": 3},
        {"type": "BlockRemoved", "block_hashes": [None]},
        {"type": "BlockStored", "block_hashes": [1], "token_ids": ["x"]},
        {"type": "BlockStored", "block_hashes": [1], "block_size": [2]},
        [],
        3,
    ],
)
def test_an_event_that_cannot_be_read_names_its_batch(event):
    with pytest.raises(EventError, match="batch 5 has an event that cannot be read"):
        batch_from(5, [0.0, [event]])

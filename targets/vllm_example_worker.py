"""The worker side of vLLM's `ExampleConnector`, simulated: files that steps write and read.

Of `vllm/distributed/kv_transfer/kv_connector/v1/example_connector.py`: a step writes, for a prompt
that is new, the slots that its metadata names into one file for the prompt, and reads such files
before anything is computed. The scheduler side looks whether the folder of a prompt is there, so
folders are really made, where the connector is told to put them; what would be in the files is a
list of places.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from poolproof.contract.engine_plan import Transfer
from poolproof.targets.vllm_connector_workers import Moves, Reported

__all__ = ["ExampleWorker"]


class ExampleWorker:
    """`folder_of(tokens, images)` is the connector's own name for a prompt's folder."""

    def __init__(self, folder_of: Callable[[Any, list[str]], str], block_size: int) -> None:
        self._folder_of = folder_of
        self._block_size = block_size
        self._files: dict[str, tuple[int, ...]] = {}
        self._written: dict[int, list[str]] = {}
        self._num_places = 0

    def begin(self, step: int, metadata: Any, number: Callable[[], int]) -> Moves:
        """What a step reads, and what it writes once it is computed.

        Raises ValueError where a file does not have as many tokens as are read, as torch does.
        """
        moves, written = Moves(), self._written.setdefault(step, [])
        for request in metadata.requests:
            name = self._folder_of(request.token_ids, request.mm_hashes)
            slots = [int(slot) for slot in request.slot_mapping]
            blocks = tuple(slot // self._block_size for slot in slots[:: self._block_size])
            if request.is_store:
                places = tuple(self._num_places + n for n in range(len(blocks)))
                self._num_places += len(blocks)
                self._files[name] = places
                written.append(name)
            else:
                places = self._files.get(name, ())
            if len(places) != len(blocks):
                raise ValueError(f"a file of {len(places)} blocks is read into {len(blocks)}")
            if blocks:
                is_load = not request.is_store
                moves.transfers.append(Transfer(number(), is_load, True, blocks, places))
        return moves

    def arrived(self, transfer_id: int, *, is_done: bool) -> bool:
        """Every step waits for its files."""
        del transfer_id, is_done
        return False

    def report(self, step: int, metadata: Any) -> Reported:
        """The folders of what was written are there now."""
        del metadata
        for name in self._written.pop(step):
            Path(name).mkdir(parents=True, exist_ok=True)
        return Reported()

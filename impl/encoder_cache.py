"""The encoder's outputs for images that workers keep: who still needs which, and which one goes.

A worker computes positions of an image only from the output of the encoder. Outputs are shared by
all requests that have the image. One that nobody needs stays until its room is wanted, the one that
was needed longest ago goes first. What goes is told to the workers with the next step; they drop it
before they encode anything, so an image may go and come back in one step.
"""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["EncoderCache"]


class EncoderCache:
    """Room for the outputs of `capacity` positions; `max_per_step` of them are encoded in a step.

    With `max_per_step` 0 a step encodes any number. Users are requests, by number.
    """

    def __init__(self, capacity: int, max_per_step: int = 0) -> None:
        self.capacity = capacity
        self.max_per_step = max_per_step
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._users: dict[str, set[int]] = {}
        self._encodes: list[str] = []
        self._forgets: list[str] = []
        self._num_encoded = 0

    def fits(self, image: str, size: int) -> bool:
        """Whether the step that is being planned may compute positions of an image."""
        if image in self._sizes:
            return True
        if 0 < self.max_per_step < self._num_encoded + size:
            return False
        needed = sum(size for known, size in self._sizes.items() if self._users[known])
        return needed + size <= self.capacity

    def need(self, image: str, size: int, user: int) -> None:
        """A request needs the output, from this step on. Only for an image that `fits`."""
        if image not in self._sizes:
            self._make_room(size)
            self._sizes[image] = size
            self._users[image] = set()
            self._encodes.append(image)
            self._num_encoded += size
        self._users[image].add(user)
        self._sizes.move_to_end(image)

    def release(self, image: str, user: int) -> None:
        """A request has computed the image, and needs it no more."""
        if image in self._users:
            self._users[image].discard(user)

    def release_all(self, user: int) -> None:
        """A request has ended, or begins anew."""
        for users in self._users.values():
            users.discard(user)

    def told(self) -> tuple[list[str], list[str]]:
        """What the step forgets and encodes; the next step begins."""
        forgets, encodes = self._forgets, self._encodes
        self._forgets, self._encodes, self._num_encoded = [], [], 0
        return forgets, encodes

    def _make_room(self, size: int) -> None:
        unused = [image for image in self._sizes if not self._users[image]]
        while sum(self._sizes.values()) + size > self.capacity:
            self._drop(unused.pop(0))

    def _drop(self, image: str) -> None:
        """An output goes; one that this step would have encoded was never there."""
        del self._sizes[image], self._users[image]
        if image in self._encodes:
            self._encodes.remove(image)
        else:
            self._forgets.append(image)

"""Loggers of an engine that catches what its threads raise, and only writes a line of it.

Where runs make things fail on purpose these lines say nothing, and they are dropped. But an error
that one of our adapters made must not be caught: it would pass for what the engine does.
"""

from __future__ import annotations

import logging

from poolproof.contract.adapter_fault import adapters_fault

__all__ = ["only_our_faults"]


class _OurFaults(logging.Filter):
    """Drops each line, and raises the error that it is about if that is an adapter's."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written: never."""
        caught = record.exc_info[1] if record.exc_info else None
        arguments = record.args if isinstance(record.args, tuple) else ()
        for error in (caught, *arguments):
            if isinstance(error, BaseException) and adapters_fault(error) is not None:
                raise error
        return False


def only_our_faults(name: str) -> None:
    """Nothing is heard of that logger but errors of ours."""
    logger = logging.getLogger(name)
    logger.setLevel(logging.ERROR)
    logger.addFilter(_OurFaults())

"""Workers: loops around a queue's `work_one`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable

from .jobs import WorkOutcome
from .limits import IDLE_DELAY

__all__ = ["work_forever", "work_forever_async"]

logger = logging.getLogger("railpost")


def work_forever(work: Callable[[], WorkOutcome], stop: threading.Event, idle_delay: float = IDLE_DELAY) -> None:
    """Calls `work` until `stop` is set: without a pause while there are jobs, then every `idle_delay` seconds.

    `work` opens its connection by itself, or takes one of a pool, so that a database that restarts costs a pause:

        def work():
            with pool.connection() as connection:
                return queue.work_one(connection, effect)

    Any number of threads and processes may work on one queue.
    """
    while not stop.is_set():
        try:
            idle = _noted(work())
        except Exception:
            logger.exception("the queue cannot be worked on; trying again in %s s", idle_delay)
            idle = True
        if idle:
            stop.wait(idle_delay)


async def work_forever_async(
    work: Callable[[], Awaitable[WorkOutcome]], stop: asyncio.Event, idle_delay: float = IDLE_DELAY
) -> None:
    """The same with asyncio."""
    while not stop.is_set():
        try:
            idle = _noted(await work())
        except Exception:
            logger.exception("the queue cannot be worked on; trying again in %s s", idle_delay)
            idle = True
        if idle:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), idle_delay)


def _noted(worked: WorkOutcome) -> bool:
    """Logs what failed. Says whether there was nothing to do."""
    if worked.kind == "failed":
        logger.warning("event %s failed, next try at %s", worked.event_id, worked.at)
    elif worked.kind == "dead":
        logger.error("event %s is a dead letter", worked.event_id)
    return worked.kind == "idle"

"""Inboxes that let a handler run between their verdict and their memory: memory and Redis."""

from __future__ import annotations

import inspect
from typing import Any, Protocol

from .delivery import Delivery


class TicketInbox(Protocol):
    """A blocking inbox with tickets."""

    def begin(self, delivery: Delivery, now: float | None = None) -> Any:
        """Judges an event, and claims it if it is to be applied. The ticket has the `verdict`."""

    def done(self, ticket: Any, now: float | None = None) -> Any:
        """The effect has happened: remember the event."""

    def undo(self, ticket: Any) -> Any:
        """The effect has failed: leave the event to the sender's next attempt."""


class AsyncTicketInbox(Protocol):
    """An inbox with tickets on asyncio."""

    async def begin(self, delivery: Delivery, now: float | None = None) -> Any:
        """Judges an event, and claims it if it is to be applied. The ticket has the `verdict`."""

    async def done(self, ticket: Any, now: float | None = None) -> Any:
        """The effect has happened: remember the event."""

    async def undo(self, ticket: Any) -> Any:
        """The effect has failed: leave the event to the sender's next attempt."""


async def settled(result: Any) -> Any:
    """The result of a call that may be a coroutine: both kinds of inbox serve asyncio."""
    return await result if inspect.isawaitable(result) else result


def is_success(status: int) -> bool:
    """Whether a handler's status says that the effect has happened."""
    return 200 <= status <= 299

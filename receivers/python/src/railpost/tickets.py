"""Inboxes that let a handler run between their verdict and their memory: memory and Redis."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, Union

from .answer import Answer
from .delivery import Delivery
from .receiver import Receiver

R = TypeVar("R")


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


AnyTicketInbox = Union[TicketInbox, AsyncTicketInbox]


async def settled(result: Any) -> Any:
    """The result of a call that may be a coroutine: both kinds of inbox serve asyncio."""
    return await result if inspect.isawaitable(result) else result


def is_success(status: int) -> bool:
    """Whether a handler's status says that the effect has happened."""
    return 200 <= status <= 299


def call_with_ticket(
    receiver: Receiver, inbox: TicketInbox, delivery: Delivery, call: Callable[[], R], status_of: Callable[[R], int]
) -> Union[R, Answer]:
    """Calls a handler if the event is to be applied, and remembers the event if it answers 2xx."""
    try:
        ticket = inbox.begin(delivery)
    except Exception as error:
        return receiver.trouble(error)
    if not ticket.verdict.applies:
        receiver.counters.count(ticket.verdict.kind)
        answer: Answer = ticket.verdict.answer
        return answer
    try:
        response = call()
    except BaseException:
        inbox.undo(ticket)
        raise
    applied = is_success(status_of(response))
    try:
        if applied:
            inbox.done(ticket)
        else:
            inbox.undo(ticket)
    except Exception as error:
        return receiver.trouble(error)
    receiver.counters.count(ticket.verdict.kind if applied else "trouble")
    return response

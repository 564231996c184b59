"""For ASGI: a middleware that lets only authentic deliveries through to a handler, with their bytes as they were."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Union

from .answer import Answer
from .body import LimitedBody
from .delivery import Delivery
from .handshakes import HandshakeAnswer, Handshakes
from .headers import IncomingHeaders
from .limits import ANSWER_LEN_MAX
from .receiver import Receiver
from .rejection import Interrupted, Rejection
from .tickets import AnyTicketInbox, is_success, settled

__all__ = ["DELIVERY", "ReceiverMiddleware", "read_body", "send_answer"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: The name under which a handler finds the `Delivery` in the scope.
DELIVERY = "railpost.delivery"
#: Methods that deliver nothing: they go to the application as they are.
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class ReceiverMiddleware:
    """Verifies requests to `paths` (all paths if None), and puts the delivery into `scope["railpost.delivery"]`.

    With an inbox of memory or Redis it also judges: the handler sees only what it should apply, and the event is
    remembered if it answers 2xx. With a SQL inbox leave `inbox` out, and let the handler judge in its transaction.
    Put it outside of every middleware that reads bodies.
    """

    def __init__(
        self,
        app: App,
        receiver: Receiver,
        paths: Union[str, Collection[str], None] = None,
        *,
        inbox: AnyTicketInbox | None = None,
        handshakes: Handshakes | None = None,
    ) -> None:
        self._app, self._receiver, self._inbox = app, receiver, inbox
        self._paths = {paths} if isinstance(paths, str) else paths
        self._handshakes = handshakes or Handshakes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (self._paths is not None and scope["path"] not in self._paths):
            return await self._app(scope, receive, send)
        headers = IncomingHeaders(scope["headers"])
        question = self._handshakes.answer(scope["method"], headers.values, scope["query_string"].decode("latin-1"))
        if question is not None:
            return await send_answer(send, question)
        if scope["method"] in SAFE_METHODS:
            return await self._app(scope, receive, send)
        try:
            body = await read_body(receive, self._receiver.body_len_max)
        except Rejection as rejection:
            return await send_answer(send, self._receiver.reject(rejection))
        try:
            delivery = self._receiver.verify(scope["headers"], body)
        except Rejection as rejection:
            return await send_answer(send, rejection.answer)
        inner = {**scope, DELIVERY: delivery}
        if self._inbox is None:
            return await self._app(inner, _again(body, receive), send)
        await self._judged(self._inbox, delivery, inner, _again(body, receive), send)

    async def _judged(
        self, inbox: AnyTicketInbox, delivery: Delivery, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            ticket = await settled(inbox.begin(delivery))
        except Exception as error:
            return await send_answer(send, self._receiver.trouble(error))
        if not ticket.verdict.applies:
            self._receiver.counters.count(ticket.verdict.kind)
            return await send_answer(send, ticket.verdict.answer)
        held = _HeldAnswer(self._receiver, inbox, ticket, send)
        try:
            await self._app(scope, receive, held.send)
        except BaseException:
            await held.undo()
            raise
        # A handler that ended without a whole answer has not applied the event.
        await held.undo()


class _HeldAnswer:
    """Holds a handler's answer back until the event is noted, so that nothing is acknowledged before."""

    def __init__(self, receiver: Receiver, inbox: AnyTicketInbox, ticket: Any, send: Send) -> None:
        self._receiver, self._inbox, self._ticket, self._send = receiver, inbox, ticket, send
        self._messages: list[Message] = []
        self._len = 0
        self._settled = self._dropped = False

    async def send(self, message: Message) -> None:
        if self._settled:
            if not self._dropped:
                await self._send(message)
            return
        self._messages.append(message)
        self._len += len(message.get("body", b""))
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if is_last or self._len > ANSWER_LEN_MAX:
            await self._settle()

    async def _settle(self) -> None:
        self._settled = True
        status = next((m["status"] for m in self._messages if m["type"] == "http.response.start"), 500)
        try:
            if is_success(status):
                await settled(self._inbox.done(self._ticket))
            else:
                await settled(self._inbox.undo(self._ticket))
        except Exception as error:
            self._dropped = True
            return await send_answer(self._send, self._receiver.trouble(error))
        self._receiver.counters.count(self._ticket.verdict.kind if is_success(status) else "trouble")
        for message in self._messages:
            await self._send(message)

    async def undo(self) -> None:
        """The handler has ended: if it never answered, the event is left to the next attempt."""
        if not self._settled:
            self._settled = True
            await settled(self._inbox.undo(self._ticket))


async def read_body(receive: Receive, limit: int) -> bytes:
    """The body of a request, up to a limit."""
    body, more = LimitedBody(limit), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Interrupted
        more = body.add(message.get("body", b"")) and message.get("more_body", False)
    return body.whole()


def _again(body: bytes, receive: Receive) -> Receive:
    """Hands a body out that was read before, then what comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again


async def send_answer(send: Send, answer: Union[Answer, HandshakeAnswer]) -> None:
    """Sends an answer."""
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.text.encode()})

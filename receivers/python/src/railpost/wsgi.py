"""For WSGI: a middleware that lets only authentic deliveries through to a handler, with their bytes as they were."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable
from http import HTTPStatus
from typing import Any, Union

from .answer import Answer
from .body import CHUNK_LEN, LimitedBody, announced_len
from .handshakes import HandshakeAnswer, Handshakes
from .receiver import Receiver
from .rejection import Interrupted, Rejection
from .tickets import TicketInbox, call_with_ticket

__all__ = ["DELIVERY", "ReceiverMiddleware"]

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

#: The name under which a handler finds the `Delivery` in the environ.
DELIVERY = "railpost.delivery"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class ReceiverMiddleware:
    """Verifies requests to `paths` (all paths if None), and puts the delivery into `environ["railpost.delivery"]`.

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
        inbox: TicketInbox | None = None,
        handshakes: Handshakes | None = None,
    ) -> None:
        self._app, self._receiver, self._inbox = app, receiver, inbox
        self._paths = {paths} if isinstance(paths, str) else paths
        self._handshakes = handshakes or Handshakes()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        if self._paths is not None and path not in self._paths:
            return self._app(environ, start_response)
        headers, method = environ_headers(environ), environ["REQUEST_METHOD"]
        question = self._handshakes.answer(method, headers, environ.get("QUERY_STRING", ""))
        if question is not None:
            return _answer(question, start_response)
        if method in SAFE_METHODS:
            return self._app(environ, start_response)
        try:
            body = read_body(environ, self._receiver.body_len_max)
        except Rejection as rejection:
            return _answer(self._receiver.reject(rejection), start_response)
        try:
            delivery = self._receiver.verify(headers, body)
        except Rejection as rejection:
            return _answer(rejection.answer, start_response)
        inner = {**environ, DELIVERY: delivery, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        inner.pop("HTTP_TRANSFER_ENCODING", None)
        if self._inbox is None:
            return self._app(inner, start_response)
        held = call_with_ticket(
            self._receiver, self._inbox, delivery, lambda: _HeldAnswer(self._app, inner), lambda answer: answer.status
        )
        return _answer(held, start_response) if isinstance(held, Answer) else held.release(start_response)


class _HeldAnswer:
    """A handler's whole answer, held back until the event is noted: a handler may work after `start_response`."""

    def __init__(self, app: App, environ: Environ) -> None:
        self._start: tuple[Any, ...] = ("500 Internal Server Error", [])
        self._written: list[bytes] = []
        answer = app(environ, self._start_response)
        try:
            self._chunks = list(answer)
        finally:
            close = getattr(answer, "close", None)
            if close is not None:
                close()
        self.status = int(self._start[0].split(" ", 1)[0])

    def _start_response(self, status: str, headers: Any, exc_info: Any = None) -> Callable[[bytes], Any]:
        self._start = (status, headers)
        return self._written.append

    def release(self, start_response: StartResponse) -> list[bytes]:
        start_response(*self._start)
        return self._written + self._chunks


def environ_headers(environ: Environ) -> dict[str, str]:
    """The headers of a request, by lower-case name."""
    headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name[:5] == "HTTP_"}
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if environ.get(name):
            headers[name.replace("_", "-").lower()] = environ[name]
    return headers


def read_body(environ: Environ, limit: int) -> bytes:
    """The body of a request, up to a limit."""
    announced = announced_len(environ.get("CONTENT_LENGTH"))
    if announced is None and not environ.get("wsgi.input_terminated"):
        # Without a length, a server that does not end the input would let a reader wait for ever.
        return b""
    body, left = LimitedBody(limit), announced
    while left is None or left > 0:
        chunk = _read(environ["wsgi.input"], CHUNK_LEN if left is None else min(left, CHUNK_LEN))
        left = left if left is None else left - len(chunk)
        if not body.add(chunk):
            break
        if not chunk:
            if left:
                raise Interrupted
            break
    return body.whole()


def _read(stream: Any, length: int) -> bytes:
    try:
        chunk: bytes = stream.read(length)
    except OSError as error:
        raise Interrupted from error
    return chunk


def _answer(answer: Union[Answer, HandshakeAnswer], start_response: StartResponse) -> list[bytes]:
    start_response(f"{answer.status} {HTTPStatus(answer.status).phrase}", answer.headers)
    return [answer.text.encode()]

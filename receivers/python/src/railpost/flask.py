"""For Flask: a decorator for views that receive webhooks.

```
@app.post("/hook")
@webhook(receiver)
def hook(delivery): ...
```

`railpost.wsgi.ReceiverMiddleware` around `app.wsgi_app` is there too. Behind it, the decorator hands out what the
middleware has verified.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Union

from .secrets import MissingExtra

try:
    from flask import Response, make_response, request
    from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge
except ImportError as error:
    raise MissingExtra("railpost.flask", "flask") from error

from .answer import Answer
from .body import announced_len, discard
from .delivery import Delivery
from .handshakes import HandshakeAnswer, Handshakes
from .inbox.policy import Verdict
from .receiver import Receiver
from .rejection import Interrupted, Rejection, TooLarge
from .tickets import TicketInbox, call_with_ticket
from .wsgi import DELIVERY, environ_headers

__all__ = ["respond", "webhook"]

View = Callable[..., Any]


def webhook(
    receiver: Receiver, *, inbox: TicketInbox | None = None, handshakes: Handshakes | None = None
) -> Callable[[View], View]:
    """Calls the view with the delivery, if the request is authentic.

    With an inbox of memory or Redis, the view sees only what it should apply, and the event is remembered if it
    answers 2xx. For handshakes the route takes GET and OPTIONS too, and `provide_automatic_options=False`.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def handle(*args: Any, **kwargs: Any) -> Any:
            headers = environ_headers(request.environ)
            if handshakes is not None:
                question = handshakes.answer(request.method, headers, request.query_string.decode("latin-1"))
                if question is not None:
                    return respond(question)
            try:
                delivery = _verified(receiver, headers)
            except Rejection as rejection:
                return respond(rejection.answer)
            try:
                return _called(receiver, inbox, delivery, lambda: make_response(view(delivery, *args, **kwargs)))
            except Rejection as rejection:
                # The view cannot read the body: the sender shall not try again.
                return respond(receiver.reject(rejection))

        return handle

    return decorate


def _called(
    receiver: Receiver, inbox: TicketInbox | None, delivery: Delivery, call: Callable[[], Response]
) -> Response:
    if inbox is None:
        return call()
    answered = call_with_ticket(receiver, inbox, delivery, call, lambda response: response.status_code)
    return respond(answered) if isinstance(answered, Answer) else answered


def respond(answer: Union[Answer, Verdict, HandshakeAnswer]) -> Response:
    """The response to a verdict, once what follows from it is committed; or any other answer."""
    if isinstance(answer, Verdict):
        answer = answer.answer
    return Response(answer.text, answer.status, answer.headers)


def _verified(receiver: Receiver, headers: dict[str, str]) -> Delivery:
    delivery = request.environ.get(DELIVERY)
    if isinstance(delivery, Delivery):
        return delivery
    try:
        body = _body(receiver.body_len_max)
    except Rejection as rejection:
        receiver.reject(rejection)
        raise
    return receiver.verify(headers, body)


def _body(limit: int) -> bytes:
    if "form" in request.__dict__ and getattr(request, "_cached_data", None) is None:
        raise RuntimeError(
            "the body was read as a form before it could be verified: put railpost.wsgi.ReceiverMiddleware around"
            " app.wsgi_app, which reads it first"
        )
    if (announced_len(request.environ.get("CONTENT_LENGTH")) or 0) > limit:
        discard(request.stream.read, limit)
        raise TooLarge(limit)
    try:
        body = request.get_data()
    except RequestEntityTooLarge as error:
        raise TooLarge(limit) from error
    except ClientDisconnected as error:
        raise Interrupted from error
    if len(body) > limit:
        raise TooLarge(limit)
    return body

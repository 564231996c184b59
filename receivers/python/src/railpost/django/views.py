"""A decorator for views that receive webhooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Union

from django.core.exceptions import RequestDataTooBig
from django.db import transaction
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from django.http.request import RawPostDataException
from django.views.decorators.csrf import csrf_exempt

from ..answer import Answer
from ..body import announced_len, discard
from ..delivery import Delivery
from ..handshakes import HandshakeAnswer, Handshakes
from ..inbox.policy import Verdict
from ..receiver import Receiver
from ..rejection import Interrupted, Rejection, TooLarge
from ..tickets import TicketInbox, call_with_ticket, is_success
from .store import DjangoInbox

View = Callable[..., Any]


def webhook(
    receiver: Receiver,
    *,
    inbox: Union[DjangoInbox, TicketInbox, None] = None,
    handshakes: Handshakes | None = None,
) -> Callable[[View], View]:
    """Calls the view with request and delivery, if the request is authentic. It is exempt from CSRF protection.

    With an inbox, the view sees only what it should apply, and the event is remembered if it answers 2xx. With a
    `DjangoInbox` that happens in one atomic block with what the view writes: any other status, and any exception,
    rolls both back. Views of asyncio have no inbox here, because atomic blocks do not know asyncio.
    """

    def decorate(view: View) -> View:
        if inspect.iscoroutinefunction(view):
            if inbox is not None:
                raise TypeError("inbox: expected None for a view of asyncio; use the inbox in a blocking view")
            return _async_view(view, receiver, handshakes)

        @csrf_exempt  # type: ignore[untyped-decorator]
        @wraps(view)
        def handle(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            first = _first(request, receiver, handshakes)
            if not isinstance(first, Delivery):
                return first

            try:
                return _called(receiver, inbox, first, lambda: view(request, first, *args, **kwargs))
            except Rejection as rejection:
                # The view cannot read the body: the sender shall not try again.
                return respond(receiver.reject(rejection))

        return handle  # type: ignore[no-any-return]

    return decorate


def _called(
    receiver: Receiver,
    inbox: Union[DjangoInbox, TicketInbox, None],
    delivery: Delivery,
    call: Callable[[], Any],
) -> Any:
    if inbox is None:
        return call()
    if isinstance(inbox, DjangoInbox):
        return _in_transaction(receiver, inbox, delivery, call)
    answered = call_with_ticket(receiver, inbox, delivery, call, lambda response: int(response.status_code))
    return respond(answered) if isinstance(answered, Answer) else answered


def respond(answer: Union[Answer, Verdict, HandshakeAnswer]) -> HttpResponse:
    """The response to a verdict, once what follows from it is committed; or any other answer."""
    if isinstance(answer, Verdict):
        answer = answer.answer
    response = HttpResponse(answer.text, status=answer.status)
    for name, value in answer.headers:
        response[name] = value
    return response


def _async_view(view: View, receiver: Receiver, handshakes: Handshakes | None) -> View:
    @csrf_exempt  # type: ignore[untyped-decorator]
    @wraps(view)
    async def handle(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        first = _first(request, receiver, handshakes)
        if not isinstance(first, Delivery):
            return first
        try:
            return await view(request, first, *args, **kwargs)
        except Rejection as rejection:
            return respond(receiver.reject(rejection))

    return handle  # type: ignore[no-any-return]


def _first(request: HttpRequest, receiver: Receiver, handshakes: Handshakes | None) -> Union[Delivery, HttpResponse]:
    """The delivery, or the answer to a handshake or a request that is not believed."""
    if handshakes is not None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        question = handshakes.answer(request.method, headers, request.META.get("QUERY_STRING", ""))
        if question is not None:
            return respond(question)
    try:
        body = _body(request, receiver.body_len_max)
    except Rejection as rejection:
        return respond(receiver.reject(rejection))
    try:
        return receiver.verify(request.headers, body)
    except Rejection as rejection:
        return respond(rejection.answer)


def _body(request: HttpRequest, limit: int) -> bytes:
    if (announced_len(request.META.get("CONTENT_LENGTH")) or 0) > limit:
        discard(request.read, limit)
        raise TooLarge(limit)
    try:
        return bytes(request.body)
    except RequestDataTooBig as error:
        raise TooLarge(limit) from error
    except RawPostDataException as error:
        raise RuntimeError(
            "the body was read before it could be verified: let no middleware read request.POST or request.read()"
            " before this view"
        ) from error
    except UnreadablePostError as error:
        raise Interrupted from error


def _in_transaction(receiver: Receiver, inbox: DjangoInbox, delivery: Delivery, call: Callable[[], Any]) -> Any:
    with transaction.atomic(using=inbox.using):
        verdict = inbox.admit(delivery)
        response = call() if verdict.applies else respond(verdict)
        failed = verdict.applies and not is_success(int(response.status_code))
        if failed:
            transaction.set_rollback(True, using=inbox.using)
    receiver.counters.count("trouble" if failed else verdict.kind)
    return response

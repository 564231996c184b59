"""For FastAPI and Starlette: a dependency that hands a verified delivery to a handler.

```
@app.post("/hook")
def hook(delivery: Annotated[Delivery, Depends(Verified(receiver))]) -> Response: ...
```

`railpost.asgi.ReceiverMiddleware` is there too, for handshakes and for inboxes of memory or Redis. Behind it, the
dependency hands out what the middleware has verified.
"""

from __future__ import annotations

from typing import Union

from .secrets import MissingExtra

try:
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
except ImportError as error:
    raise MissingExtra("railpost.fastapi", "fastapi") from error

from .answer import TROUBLE, Answer
from .asgi import DELIVERY
from .body import LimitedBody
from .delivery import Delivery
from .inbox.policy import Verdict
from .receiver import Receiver
from .rejection import Interrupted, Rejection

__all__ = ["Verified", "on_rejection", "respond"]


class Verified:
    """A dependency: the delivery, if the request is authentic. Any other request is answered 400, 401, 408 or 413."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    async def __call__(self, request: Request) -> Delivery:
        delivery = request.scope.get(DELIVERY)
        if isinstance(delivery, Delivery):
            return delivery
        try:
            body = await self._read(request)
        except Rejection as rejection:
            raise _refusal(self.receiver.reject(rejection)) from rejection
        try:
            return self.receiver.verify(request.scope["headers"], body)
        except Rejection as rejection:
            raise _refusal(rejection.answer) from rejection

    async def _read(self, request: Request) -> bytes:
        body = LimitedBody(self.receiver.body_len_max)
        try:
            # If the framework has read the body for a parameter of the handler, it gives the same bytes out here.
            async for chunk in request.stream():
                if not body.add(chunk):
                    break
        except RuntimeError as error:
            raise RuntimeError(
                "the body was read as a form before it could be verified: add railpost.asgi.ReceiverMiddleware,"
                " which reads it first"
            ) from error
        except Exception as error:
            if type(error).__name__ == "ClientDisconnect":
                raise Interrupted from error
            raise
        return body.whole()


def respond(answer: Union[Answer, Verdict]) -> PlainTextResponse:
    """The response to a verdict, once what follows from it is committed; or any other answer."""
    if isinstance(answer, Verdict):
        answer = answer.answer
    headers = {} if answer.retry_after is None else {"Retry-After": str(answer.retry_after)}
    return PlainTextResponse(answer.text, answer.status, headers)


def on_rejection(request: Request, error: Exception) -> PlainTextResponse:
    """Answers a `Rejection` that a handler raised, such as for a body that is not JSON, with 400 instead of 500:

    `app.add_exception_handler(railpost.Rejection, on_rejection)`.
    """
    return respond(error.answer if isinstance(error, Rejection) else TROUBLE)


def _refusal(answer: Answer) -> HTTPException:
    return HTTPException(answer.status, answer.text)

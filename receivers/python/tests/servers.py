"""Real servers on loopback: uvicorn for ASGI, wsgiref for WSGI."""

from __future__ import annotations

import contextlib
import http.client
import socketserver
import threading
from collections.abc import Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import uvicorn

from railpost.testing import Request


@contextlib.contextmanager
def asgi_server(app: Any) -> Iterator[int]:
    """Runs an ASGI application and says its port."""
    started = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set()

    server = Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    started.wait()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


class _ThreadingServer(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


@contextlib.contextmanager
def wsgi_server(app: Any) -> Iterator[int]:
    """Runs a WSGI application and says its port."""
    with make_server("127.0.0.1", 0, app, _ThreadingServer, _Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def send(
    port: int, request: Request, path: str = "/hook", method: str = "POST", chunked: bool = False
) -> http.client.HTTPResponse:
    """Sends one request. The answer's body is in `text`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"content-type": "application/json", **dict(request.headers)}
    body: Any = iter([request.body[:3], request.body[3:]]) if chunked else request.body
    connection.request(method, path, body, headers, encode_chunked=chunked)
    response = connection.getresponse()
    response.text = response.read().decode()  # type: ignore[attr-defined]
    connection.close()
    return response


def http_handler(port: int, path: str = "/hook") -> Any:
    """A handler under test behind a real server."""
    return lambda request: send(port, request, path).status

"""The README's code runs, and says what it says."""

from __future__ import annotations

import contextlib
import io
import re
import sqlite3
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from servers import asgi_server
from use_package import code_blocks
from vectors import ROOT

from railpost.limits import BODY_LEN_MAX, GAP_TIMEOUT_DEFAULT, RETENTION_DEFAULT, TOLERANCE_DEFAULT

README = (ROOT / "receivers" / "python" / "README.md").read_text("utf-8")
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_receiver_of_the_readme_answers_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEBHOOK_SECRETS", SECRET)
    _, shop, attempts = code_blocks(README)[:3]
    module = types.ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", module)
    exec(shop, module.__dict__)
    with asgi_server(module.app) as port:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(attempts.replace("127.0.0.1:8000", f"127.0.0.1:{port}"), {})
    (wanted,) = re.findall(r"```text\n(.*?)```", README, flags=re.DOTALL)
    said = [line for line in printed.getvalue().splitlines() if not line.startswith(("test-", "old ", "early "))]
    assert said == wanted.splitlines()
    with contextlib.closing(sqlite3.connect("shop.db")) as database:
        assert database.execute("select * from orders").fetchall() == [("A", "placed"), ("A", "paid")]


def test_the_queue_of_the_readme_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(code_blocks(README)[0], scope)
    exec(code_blocks(README)[3], scope)
    from railpost.testing import Sender

    sender = Sender(SECRET)
    request = sender.request(sender.event(b"paid"))
    assert scope["accept"](scope["database"], scope["receiver"].verify(request.headers, request.body)).status == 200
    assert scope["queue"].work_one(scope["database"], scope["effect"]).kind == "done"
    assert scope["database"].execute("select * from orders").fetchall() == [(b"paid",)]
    scope["database"].close()


def test_all_code_of_the_readme_is_python() -> None:
    for block in code_blocks(README):
        compile(block, "README.md", "exec")


def test_the_bounds_that_the_readme_names_are_those_of_the_code() -> None:
    assert (BODY_LEN_MAX, GAP_TIMEOUT_DEFAULT, TOLERANCE_DEFAULT) == (1024 * 1024, 60, 300)
    assert RETENTION_DEFAULT == 30 * 24 * 60 * 60

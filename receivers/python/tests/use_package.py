"""Uses the built package in an environment that has nothing else: the beginning of the README, word for word.

`python use_package.py README.md`, by the interpreter of that environment.
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import logging
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any


def code_blocks(readme: str) -> list[str]:
    """The Python code of the README, block by block."""
    return re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)


def main(readme: str) -> None:
    text = Path(readme).read_text("utf-8")
    others = {dist.metadata["Name"] for dist in importlib.metadata.distributions()} - {"railpost", "pip", "setuptools"}
    assert not others, f"this environment is not empty: {others}"
    import railpost

    assert "site-packages" in railpost.__file__
    assert importlib.resources.files("railpost").joinpath("py.typed").is_file()
    # The reasons of the forged requests.
    logging.disable()
    os.chdir(tempfile.mkdtemp())
    scope: dict[str, Any] = {}
    exec(code_blocks(text)[0], scope)
    from railpost.testing import Sender, ordeal

    def handler(request: Any) -> int:
        try:
            return int(scope["handle"](request.headers, request.body))
        except railpost.Rejection as rejection:
            return rejection.answer.status

    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    report = ordeal(handler, secret)
    assert not report.problems, report.problems
    (orders,) = scope["database"].execute("select count(*) from orders").fetchone()
    assert orders == len(report.events)
    request = Sender(secret).request(Sender(secret).event())
    try:
        railpost.Receiver(keys="whpk_ZlN4eg7dSSqi0moX9hQUk3orrOouK3QVQSlJa248c/g=").verify(request.headers, b"")
    except railpost.MissingExtra as error:
        assert "pip install 'railpost[ed25519]'" in str(error)
    scope["database"].close()
    print(f"   railpost {railpost.__version__} in an empty environment, Python {sys.version.split()[0]}:", end=" ")
    print(f"{report.sent} requests, {report.refused} refused, {report.held} held, {orders} effects")


if __name__ == "__main__":
    main(sys.argv[1])

"""The real server, `railpost serve`, as a process of its own, and calls of its API."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

from stores import required

KEY = "rp_" + "k" * 40


class Railpost:
    """A server on a data folder. It can be stopped, restored and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command("serve", "--listen", f"127.0.0.1:{self.port}", "--log-level", "error"),
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        while not self._is_ready():
            assert self.process.poll() is None, "railpost serve ended"

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(60) == 0

    def restore(self, backup: str) -> None:
        """Puts a backup in the place of the store, while the server is stopped."""
        command = self._command("restore", str(self.folder / "backups" / backup))
        subprocess.run(command, env=self._environment(), check=True, capture_output=True, timeout=60)

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """An API call that must succeed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"authorization": f"Bearer {KEY}", "content-type": content_type}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        assert 200 <= response.status <= 299, f"{method} {path}: {response.status} {text}"
        return json.loads(text) if text else None

    def tenant(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        return self.call(method, f"/v1/tenants/default/{path}", body, content_type)

    def wait_until_all_is_delivered(self) -> None:
        while self.tenant("GET", "overview")["open"]:
            assert self.process.poll() is None, "railpost serve ended"

    def _is_ready(self) -> bool:
        try:
            self.call("GET", "/health/ready")
        except (OSError, AssertionError):
            return False
        return True

    def _command(self, command: str, *args: str) -> list[str]:
        return [required("RAILPOST_BIN"), command, "--data-dir", str(self.folder), *args]

    def _environment(self) -> dict[str, str]:
        known = {name: value for name, value in os.environ.items() if not name.startswith("RAILPOST_")}
        return {**known, "RAILPOST_SERVER_ADMIN_KEY": KEY}

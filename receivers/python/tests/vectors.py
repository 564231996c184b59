"""The cases of `vectors/`, which every language must agree on."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


def load(name: str) -> dict[str, list[dict[str, Any]]]:
    """The lists of a file."""
    return json.loads((ROOT / "vectors" / f"{name}.json").read_text("utf-8"))


def body_of(case: dict[str, Any], name: str = "body") -> bytes:
    """Bytes that are given as text or as base64."""
    encoded = case.get(f"{name}_base64")
    return case[name].encode() if encoded is None else base64.b64decode(encoded)

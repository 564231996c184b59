"""Secrets and keys: parsed, and never shown by accident."""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Union

from .limits import SECRET_LEN_MAX, SECRET_LEN_MIN


class BadSecret(ValueError):
    """A text that is no secret or key. The text is not shown: it may be nearly one."""


class MissingExtra(ImportError):
    """Something needs a package that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs a package that is not installed: pip install 'railpost[{extra}]'")


class Secret:
    """A shared secret: `whsec_` and the base64 of 24 to 64 bytes."""

    __slots__ = ("key", "text")

    def __init__(self, text: str) -> None:
        #: The bytes behind the prefix: what `webhook-signature` is keyed by.
        self.key = _decode("whsec_", text)
        if not SECRET_LEN_MIN <= len(self.key) <= SECRET_LEN_MAX:
            raise BadSecret("expected a secret: `whsec_` and the base64 of 24 to 64 bytes")
        #: The text as people see it: what `X-Webhook-Signature` is keyed by.
        self.text = text.encode()

    @classmethod
    def from_bytes(cls, key: bytes) -> Secret:
        """A secret of these 24 to 64 bytes."""
        return cls("whsec_" + base64.b64encode(key).decode())

    def __repr__(self) -> str:
        return "Secret(…)"


class VerifyingKey:
    """An Ed25519 public key: `whpk_` and the base64 of 32 bytes. Needs the extra `ed25519`."""

    __slots__ = ("_key", "_invalid", "text")

    def __init__(self, text: str) -> None:
        key = _decode("whpk_", text)
        if len(key) != 32:
            raise BadSecret("expected a verifying key: `whpk_` and the base64 of a 32-byte Ed25519 public key")
        try:
            from cryptography.exceptions import InvalidSignature
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        except ImportError as error:
            raise MissingExtra("Ed25519", "ed25519") from error
        self._key = Ed25519PublicKey.from_public_bytes(key)
        self._invalid = InvalidSignature
        self.text = text

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Whether this key signed the message."""
        try:
            self._key.verify(signature, message)
        except self._invalid:
            return False
        return True

    def __repr__(self) -> str:
        return f"VerifyingKey({self.text!r})"


class SigningKey:
    """An Ed25519 private key: `whsk_` and the base64 of a 32-byte seed, or of seed and public key.

    Receivers need none; `railpost.testing` signs with it. Needs the extra `ed25519`.
    """

    __slots__ = ("_key", "_seed")

    def __init__(self, text: str) -> None:
        expected = "a signing key: `whsk_` and the base64 of a 32-byte Ed25519 seed, or of seed and public key"
        seed = _decode("whsk_", text)
        if len(seed) not in (32, 64):
            raise BadSecret(f"expected {expected}")
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        except ImportError as error:
            raise MissingExtra("Ed25519", "ed25519") from error
        self._seed, public = seed[:32], seed[32:]
        self._key = Ed25519PrivateKey.from_private_bytes(self._seed)
        if public and public != self._key.public_key().public_bytes_raw():
            raise BadSecret(f"expected {expected}")

    @property
    def canonical(self) -> str:
        """The key as text."""
        return "whsk_" + base64.b64encode(self._seed).decode()

    @property
    def public(self) -> str:
        """The text of its public half."""
        return "whpk_" + base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    def sign(self, message: bytes) -> bytes:
        """The signature of a message."""
        return self._key.sign(message)

    def __repr__(self) -> str:
        return "SigningKey(…)"


Signer = Union[Secret, SigningKey]


def tag(key: bytes, message: bytes, algorithm: str = "sha256") -> bytes:
    """The HMAC of a message."""
    return hmac.digest(key, message, algorithm)


def decode_base64(text: str) -> bytes | None:
    """The bytes behind canonical base64: one text for each, so that nothing has two spellings."""
    try:
        decoded = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return None
    return decoded if base64.b64encode(decoded) == text.encode() else None


def _decode(prefix: str, text: str) -> bytes:
    # A text that is far too long is refused before it is decoded.
    if not isinstance(text, str) or not text.startswith(prefix) or len(text) > 128:
        raise BadSecret(f"expected a text that begins with `{prefix}`, followed by base64")
    decoded = decode_base64(text[len(prefix) :])
    if decoded is None:
        raise BadSecret(f"expected base64 behind `{prefix}`")
    return decoded

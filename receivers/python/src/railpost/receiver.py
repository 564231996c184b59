"""Verifying: the first thing a receiver does, on the bytes as they arrived."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Union

from .answer import TROUBLE, Answer
from .counters import Counters
from .delivery import Delivery
from .headers import HeaderNames, HeadersLike, IncomingHeaders
from .limits import BODY_LEN_MAX, TOLERANCE_DEFAULT
from .profiles import HubProfile, Profile, StandardProfile, StripeProfile, SvixProfile
from .rejection import Rejection, TooLarge
from .secrets import Secret, VerifyingKey

Texts = Union[str, Iterable[str]]
logger = logging.getLogger("railpost")


class Receiver:
    """Believes requests that one of its secrets or keys signed.

    It requires `webhook-signature`, because `X-Webhook-Signature` does not cover the event id, and
    deduplication is worth nothing if a captured request can be sent again under another id. `timestamped=True`
    takes the second form too. `tolerance` is in seconds, to either side. `names` are the names that the endpoint
    gives the headers, such as `{"x_key": "X-Order"}`.
    """

    def __init__(
        self,
        secrets: Texts = (),
        keys: Texts = (),
        *,
        tolerance: int = TOLERANCE_DEFAULT,
        names: Mapping[str, str] | None = None,
        timestamped: bool = False,
    ) -> None:
        trusted = [Secret(text) for text in _texts(secrets)]
        public = [VerifyingKey(text) for text in _texts(keys)]
        _check_tolerance(tolerance)
        if not trusted and not public:
            raise ValueError("secrets, keys: expected at least one; without any, every request would be rejected")
        self._set_up(StandardProfile(trusted, public, tolerance, HeaderNames(names), timestamped))

    def _set_up(self, profile: Profile) -> None:
        self._profile = profile
        #: Largest body that is read, in bytes.
        self.body_len_max = BODY_LEN_MAX
        #: What became of the requests.
        self.counters = Counters()

    @classmethod
    def of_profile(cls, profile: Profile) -> Receiver:
        """A receiver for another way of signing."""
        receiver = cls.__new__(cls)
        receiver._set_up(profile)
        return receiver

    @classmethod
    def svix(cls, secrets: Texts, keys: Texts = (), *, tolerance: int = TOLERANCE_DEFAULT) -> Receiver:
        """For Svix: `svix-id`, `svix-timestamp`, `svix-signature`."""
        _check_tolerance(tolerance)
        trusted = [Secret(text) for text in _texts(secrets)]
        return cls.of_profile(SvixProfile(trusted, [VerifyingKey(text) for text in _texts(keys)], tolerance))

    @classmethod
    def stripe(cls, secrets: Texts, *, tolerance: int = TOLERANCE_DEFAULT) -> Receiver:
        """For Stripe: `Stripe-Signature`, with the secrets as Stripe shows them. The id is the body's `id`."""
        _check_tolerance(tolerance)
        return cls.of_profile(StripeProfile(_texts(secrets), tolerance))

    @classmethod
    def github(cls, secrets: Texts) -> Receiver:
        """For GitHub: `X-Hub-Signature-256`. The id is `X-GitHub-Delivery`, which is not signed: use TLS."""
        return cls.of_profile(
            HubProfile(
                _texts(secrets),
                signature_header="X-Hub-Signature-256",
                id_header="X-GitHub-Delivery",
                type_header="X-GitHub-Event",
                methods=["sha256"],
                names=None,
            )
        )

    @classmethod
    def websub(
        cls, secrets: Texts, *, id_header: str = "webhook-id", methods: Iterable[str] = ("sha256", "sha384", "sha512")
    ) -> Receiver:
        """For WebSub hubs that number what they send, as Railpost does: `X-Hub-Signature`, id and order in headers.

        WebSub itself has no ids, so a hub without `id_header` is refused. Add `sha1` to `methods` for hubs that
        know nothing better. Neither id nor time is signed: use TLS.
        """
        methods = list(methods)
        known = ("sha1", "sha256", "sha384", "sha512")
        if not methods or not set(methods) <= set(known):
            raise ValueError(f"methods: expected some of {', '.join(known)}; got {methods}")
        return cls.of_profile(
            HubProfile(
                _texts(secrets),
                signature_header="X-Hub-Signature",
                id_header=id_header,
                type_header=None,
                methods=methods,
                names=HeaderNames(),
            )
        )

    def verify(self, headers: HeadersLike, body: bytes, now: float | None = None) -> Delivery:
        """The delivery, if the request is authentic and recent. Otherwise a `Rejection` is raised.

        `body` is the bytes as they arrived, `now` is in seconds since 1970.
        """
        if not isinstance(body, bytes):
            raise TypeError(f"body: expected the bytes as they arrived; got {type(body).__name__}")
        try:
            if len(body) > self.body_len_max:
                raise TooLarge(self.body_len_max)
            return self._profile.read(IncomingHeaders(headers), body, int(time.time() if now is None else now))
        except Rejection as rejection:
            self.reject(rejection)
            raise

    def reject(self, rejection: Rejection) -> Answer:
        """Counts and logs a request that is not believed, and says what to answer."""
        self.counters.count("rejected")
        logger.warning("request rejected: %s", rejection)
        return rejection.answer

    def trouble(self, error: BaseException) -> Answer:
        """Counts and logs that the store or the effect failed, and says what to answer."""
        self.counters.count("trouble")
        logger.error("delivery failed: %s", error, exc_info=error)
        return TROUBLE


def _texts(texts: Texts) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)


def _check_tolerance(tolerance: int) -> None:
    if isinstance(tolerance, bool) or not isinstance(tolerance, int) or tolerance < 0:
        raise ValueError(f"tolerance: expected a whole number of seconds from 0; got {tolerance!r}")

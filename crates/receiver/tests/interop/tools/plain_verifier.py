"""A verifier of `X-Webhook-Signature` as people write it by hand, with nothing but the standard library."""

import hashlib
import hmac
import time


def verify_webhook_signature(payload, signature_header, secret, tolerance_sec=300):
    try:
        params = dict(param.split("=") for param in signature_header.split(","))
        timestamp = int(params.get("t", 0))
        signature = params.get("v1", "")
        # Reject stale payloads to prevent replay attacks.
        if abs(time.time() - timestamp) > tolerance_sec:
            return False
        signed = f"{timestamp}.{payload.decode('utf-8')}".encode()
        expected = hmac.new(secret, signed, hashlib.sha256).hexdigest()
        return hmac.compare_digest(expected, signature)
    except Exception:
        return False

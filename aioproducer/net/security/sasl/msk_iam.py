"""AWS_MSK_IAM: Amazon MSK's mechanism, a presigned request in JSON.

The signature is AWS Signature Version 4; `aws_credentials` finds the credentials.

Invariants: the secret key is only used in an HMAC; the region is that in the broker's name, else
that of the environment or of the profile.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import time
from collections.abc import AsyncGenerator, Callable
from urllib.parse import quote

from aioproducer._util.bounded_json import decoded_json
from aioproducer._util.threads import in_thread
from aioproducer._version import __version__
from aioproducer.errors import AuthenticationError
from aioproducer.net.security.sasl import CredentialsSource
from aioproducer.types import SaslCredentials

_LONGEST_ANSWER = 64 * 1024
_SERVICE = "kafka-cluster"
_ACTION = "kafka-cluster:Connect"
_ALGORITHM = "AWS4-HMAC-SHA256"
_LIFE_S = "900"
_VERSION = "2020_10_22"
_REGION_IN_NAME = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.(?:vpce\.)?amazonaws\.com")


class MskIam:
    """The mechanism AWS_MSK_IAM."""

    name: str = "AWS_MSK_IAM"

    def __init__(
        self,
        credentials: CredentialsSource,
        clock: Callable[[], float] = time.time,
        region_of_profile: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._credentials = credentials
        self._clock = clock
        self._region_of_profile = region_of_profile

    async def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
        """Send one message; the response only has to be JSON."""
        given = await self._credentials()
        region = _region_of(host) or await in_thread(self._region_of_profile)
        if not region:
            raise AuthenticationError(
                f"the AWS region of {host} is not known", advice="set AWS_REGION in the environment"
            )
        answer = yield signed_payload(given, host, region, self._clock())
        try:
            decoded_json(answer, _LONGEST_ANSWER)
        except (ValueError, RecursionError):
            raise AuthenticationError("the broker's answer to AWS_MSK_IAM is no JSON") from None


def signed_payload(credentials: SaslCredentials, host: str, region: str, now: float) -> bytes:
    """Return the message for a broker; `now` in seconds since the epoch."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    scope = f"{moment[:8]}/{region}/{_SERVICE}/aws4_request"
    query = {
        "Action": _ACTION,
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.username}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": _LIFE_S,
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.session_token is not None:
        query["X-Amz-Security-Token"] = credentials.session_token
    message = {name.lower(): value for name, value in query.items()}
    message |= {
        "version": _VERSION,
        "host": host,
        "user-agent": f"aioproducer/{__version__}",
        "x-amz-signature": _signature(credentials.password, query, scope, host=host),
    }
    return json.dumps(message, separators=(",", ":")).encode()


def _signature(secret: str, query: dict[str, str], scope: str, *, host: str) -> str:
    canonical_query = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in sorted(query.items())
    )
    empty = hashlib.sha256(b"").hexdigest()
    canonical = f"GET\n/\n{canonical_query}\nhost:{host}\n\nhost\n{empty}"
    to_sign = "\n".join(
        [_ALGORITHM, query["X-Amz-Date"], scope, hashlib.sha256(canonical.encode()).hexdigest()]
    )
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, to_sign.encode(), "sha256").hexdigest()


def _region_of(host: str) -> str | None:
    found = _REGION_IN_NAME.search(host)
    given = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")  # as botocore
    return found[1] if found else given

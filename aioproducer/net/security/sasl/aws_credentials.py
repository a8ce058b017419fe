"""AWS credentials as the AWS tools find them, by `botocore`.

Owns: asking its chain (environment, profiles, container and instance roles). Must not know: what
they sign.

Invariant: the chain may ask servers, so it runs in a thread; botocore keeps what it found fresh.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from aioproducer.errors import AuthenticationError, ConfigError
from aioproducer.net.security.sasl import CredentialsSource
from aioproducer.types import SaslCredentials


def default_chain(profile: str | None = None) -> CredentialsSource:
    """A source that asks botocore each time.

    Raises:
        ConfigError: botocore is not installed.
    """
    try:
        botocore = importlib.import_module("botocore.session")
    except ImportError:
        raise ConfigError(
            "AWS_MSK_IAM needs sasl_credentials, or the package botocore to find AWS credentials",
            advice='pip install "aioproducer[msk]"',
        ) from None
    session = botocore.Session(profile=profile)

    def find() -> Any:
        credentials = session.get_credentials()
        return None if credentials is None else credentials.get_frozen_credentials()

    async def give() -> SaslCredentials:
        found = await asyncio.to_thread(find)
        if found is None:
            raise AuthenticationError(
                "no AWS credentials were found",
                advice="configure them as for the AWS command line, or give sasl_credentials",
            )
        return SaslCredentials(found.access_key, found.secret_key, session_token=found.token)

    return give

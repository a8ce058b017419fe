"""AWS credentials from `botocore`'s chain (environment, profiles, roles), and the profile's region.

The chain may send requests and wait for a server that does not answer, so it runs in separate
threads; botocore renews the credentials.
"""

from __future__ import annotations

from typing import Any

from aioproducer._util.threads import OwnThreads
from aioproducer.errors import AuthenticationError, ConfigError
from aioproducer.net.security.sasl import CredentialsSource
from aioproducer.types import SaslCredentials


def default_chain(profile: str | None = None) -> CredentialsSource:
    """Return a source that gets the credentials from botocore on each call."""
    try:
        from botocore.session import Session
    except ImportError:
        raise ConfigError(
            "AWS_MSK_IAM needs sasl_credentials, or the package botocore to find AWS credentials",
            advice='pip install "aioproducer[msk]"',
        ) from None
    session, threads = Session(profile=profile), OwnThreads()

    def find() -> Any:
        credentials = session.get_credentials()
        return None if credentials is None else credentials.get_frozen_credentials()

    async def give() -> SaslCredentials:
        found = await threads.run(find)
        if found is None:
            raise AuthenticationError(
                "no AWS credentials were found",
                advice="configure them as for the AWS command line, or give sasl_credentials",
            )
        return SaslCredentials(found.access_key, found.secret_key, session_token=found.token)

    return give


def configured_region(profile: str | None = None) -> str | None:
    """Return the region of a profile in AWS's configuration file; reads the file."""
    from botocore.session import Session

    region: str | None = Session(profile=profile).get_config_variable("region")
    return region

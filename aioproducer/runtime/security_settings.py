"""Conversion of the options `ssl_*` and `sasl_*` to TLS contexts and SASL mechanisms.

Invariant: mistakes that can be found before connecting are raised here, as `ConfigError`.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from functools import cache, partial
from inspect import isawaitable
from math import floor
from random import Random
from time import time
from typing import TYPE_CHECKING

from aioproducer._util import log
from aioproducer._util.hosts import is_exposed
from aioproducer._util.paths import path_in_url
from aioproducer._util.printable import repr_of
from aioproducer._util.secrets import cleared, hides_arguments, without_login
from aioproducer._util.tasks import HOOK_ERRORS, is_cancellation
from aioproducer.config.jaas import JaasLogin, parse_jaas
from aioproducer.config.rules_security import PASSWORD_MECHANISMS
from aioproducer.errors import AuthenticationError, ConfigError, KafkaConnectionError, KafkaError
from aioproducer.errors.advice import ADVICE
from aioproducer.errors.authorization import this_principal
from aioproducer.net.security.sasl import CredentialsSource, Mechanism, fixed
from aioproducer.net.security.tokens import CachedTokens, RefreshPolicy, as_token
from aioproducer.types import OAuthToken, SaslCredentials

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.net.security.oidc import Assertions
    from aioproducer.net.security.tls import TlsContexts, TlsSettings

_log = log.get("runtime")
_EXTENSION = "extension_"
_UNSECURED_CLAIM = "unsecuredLoginStringClaim_"
_UNSECURED_EXTENSION = "unsecuredLoginExtension_"
_UNSECURED_LIFE = "unsecuredLoginLifetimeSeconds"


# -- TLS -----------------------------------------------------------------------------------------


@hides_arguments
def tls_contexts(config: ProducerConfig) -> TlsContexts | None:
    """Return the source of TLS contexts; None without TLS."""
    if "SSL" not in config.security_protocol:
        return None
    from aioproducer.net.security.tls import TlsContexts

    return TlsContexts(_tls_settings(config))


def _tls_settings(config: ProducerConfig) -> TlsSettings:
    from aioproducer.net.security.tls import TlsSettings

    chosen = config.explicitly_set
    enabled = config.ssl_enabled_protocols
    versions = tuple(name for name in enabled if name <= config.ssl_protocol)
    if not versions:
        raise ConfigError("ssl_protocol is below every version of ssl_enabled_protocols")
    return TlsSettings(
        context=config.ssl_context,
        truststore_location=config.ssl_truststore_location,
        truststore_password=config.ssl_truststore_password,
        truststore_kind=(config.ssl_truststore_type if "ssl_truststore_type" in chosen else None),
        truststore_certificates=config.ssl_truststore_certificates,
        keystore_location=config.ssl_keystore_location,
        keystore_password=config.ssl_keystore_password,
        keystore_kind=config.ssl_keystore_type if "ssl_keystore_type" in chosen else None,
        keystore_certificate_chain=config.ssl_keystore_certificate_chain,
        keystore_key=config.ssl_keystore_key,
        key_location=config.ssl_key_location,
        key_password=config.ssl_key_password,
        verify_host_name=config.ssl_endpoint_identification_algorithm == "https",
        versions=versions,
        cipher_suites=tuple(config.ssl_cipher_suites),
    )


# -- the principal -------------------------------------------------------------------------------


def principal_of(config: ProducerConfig) -> Callable[[], str]:
    """Return a function that describes the principal of a client with these options."""
    return cache(lambda: _principal(config))


def _principal(config: ProducerConfig) -> str:
    if "SASL" in config.security_protocol:
        return _sasl_principal(config)
    if config.security_protocol == "PLAINTEXT":
        return "User:ANONYMOUS (no SASL, no client certificate)"
    if config.ssl_context is not None:
        return this_principal()
    from aioproducer.net.security.tls import client_subject

    try:
        subject = client_subject(_tls_settings(config))
    except (ConfigError, ValueError):
        return "the subject of the client's certificate"
    if subject is None:
        return "User:ANONYMOUS (no client certificate)"
    return f"the client's certificate {subject}"


def _sasl_principal(config: ProducerConfig) -> str:
    name = config.sasl_mechanism
    if name not in {"PLAIN", *PASSWORD_MECHANISMS}:
        whose = {"OAUTHBEARER": "token's subject", "GSSAPI": "Kerberos principal"}
        return f"the {whose.get(name, 'identity')} ({name})"
    if config.sasl_credentials is not None:
        return f"the user that sasl_credentials gives ({name})"
    login = parse_jaas(config.sasl_jaas_config, name)
    return f"User:{config.sasl_username or login.options['username']}"


# -- SASL ----------------------------------------------------------------------------------------


@hides_arguments
def sasl_mechanism(config: ProducerConfig) -> Mechanism | None:
    """Return the SASL mechanism; None without SASL."""
    if "SASL" not in config.security_protocol:
        return None
    name = config.sasl_mechanism
    login = parse_jaas(config.sasl_jaas_config, name)
    if name == "PLAIN":
        from aioproducer.net.security.sasl.plain import Plain

        return Plain(_credentials(config, login))
    if name in PASSWORD_MECHANISMS:
        from aioproducer.net.security.sasl.scram import Scram

        return Scram(name, _credentials(config, login))
    if name == "OAUTHBEARER":
        from aioproducer.net.security.sasl.oauthbearer import OAuthBearer

        return OAuthBearer(_tokens(config, login))
    if name == "AWS_MSK_IAM":
        from aioproducer.net.security.sasl.aws_credentials import configured_region, default_chain
        from aioproducer.net.security.sasl.msk_iam import MskIam

        if config.sasl_credentials is not None:
            return MskIam(_asked(config.sasl_credentials))
        profile = login.options.get("awsProfileName")
        region = partial(configured_region, profile)
        return MskIam(default_chain(profile), region_of_profile=region)
    return _kerberos(config, login)


def _credentials(config: ProducerConfig, login: JaasLogin) -> CredentialsSource:
    if config.sasl_credentials is not None:
        return _asked(config.sasl_credentials)
    if config.sasl_username is not None and config.sasl_password is not None:
        return fixed(SaslCredentials(config.sasl_username, config.sasl_password))
    options = login.options
    is_token = options.get("tokenauth", "").lower() == "true"
    extensions = {"tokenauth": "true"} if is_token else {}
    return fixed(SaslCredentials(options["username"], options["password"], extensions))


def _asked(function: Callable[[], object]) -> CredentialsSource:
    """Return a source that calls the user's function."""
    call = _calls("sasl_credentials", function)

    async def ask() -> SaslCredentials:
        given = await call()
        if isinstance(given, tuple) and len(given) == 2:
            given = SaslCredentials(*given)
        if not isinstance(given, SaslCredentials) or not all(
            isinstance(text, str) for text in (given.username, given.password)
        ):
            raise AuthenticationError(
                "sasl_credentials must return (user name, password) or SaslCredentials",
                advice="correct the function given as sasl_credentials",
            )
        return given

    return ask


def _calls(name: str, function: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    """Wrap a user's function, asynchronous or not, so that it raises only `KafkaError`.

    After an `OSError`, such as a timeout, it is retried later; any other exception is not
    retriable, and is logged with its traceback once.
    """
    was_logged = False

    async def call() -> object:
        nonlocal was_logged
        try:
            given = function()
            return await given if isawaitable(given) else given
        except KafkaError:
            raise
        except OSError as error:
            raise KafkaConnectionError(
                f"{name} raised {repr_of(error)}", advice=ADVICE["credentials-unavailable"]
            ) from error
        except HOOK_ERRORS as error:
            if is_cancellation(error):
                raise
            cleared(error)
            if not was_logged:
                was_logged = True
                _log.error("%s raised an exception", name, exc_info=error)
            raise AuthenticationError(
                f"{name} raised {repr_of(error)}",
                advice=f"correct the function given as {name}; what may pass by itself should be "
                "an OSError",
            ) from error

    return call


def _kerberos(config: ProducerConfig, login: JaasLogin) -> Mechanism:
    from aioproducer.net.security.sasl.gssapi import Gssapi, KerberosSettings

    options = login.options
    service = config.sasl_kerberos_service_name or options.get("serviceName")
    if service is None:
        raise ConfigError(
            "GSSAPI needs sasl_kerberos_service_name",
            advice="set it to the brokers' service name, mostly kafka; for another mechanism set "
            "sasl_mechanism",
        )
    with_keytab = options.get("useKeyTab", "").lower() == "true"
    if with_keytab and "keyTab" not in options:
        raise ConfigError("sasl_jaas_config: useKeyTab=true needs keyTab")
    return Gssapi(
        KerberosSettings(
            service,
            options.get("principal"),
            options["keyTab"] if with_keytab else None,
            options.get("ticketCache"),
        )
    )


# -- tokens --------------------------------------------------------------------------------------


def _tokens(config: ProducerConfig, login: JaasLogin) -> CachedTokens:
    policy = RefreshPolicy(
        config.sasl_login_refresh_window_factor,
        config.sasl_login_refresh_window_jitter,
        config.sasl_login_refresh_min_period_seconds,
        config.sasl_login_refresh_buffer_seconds,
    )
    rng = Random()
    return CachedTokens(_fetch(config, login, rng), policy, rng=rng)


def _fetch(
    config: ProducerConfig, login: JaasLogin, rng: Random
) -> Callable[[], Awaitable[OAuthToken]]:
    """Return a function that fetches one token."""
    function = config.sasl_oauthbearer_token
    extensions = _prefixed(login, _EXTENSION)
    if function is not None:
        call = _calls("sasl_oauthbearer_token", function)

        async def ask() -> OAuthToken:
            return as_token(await call(), extensions)

        return ask
    url = config.sasl_oauthbearer_token_endpoint_url
    if url is None:
        return _unsecured(login)
    from aioproducer.net.security.oidc import EndpointSettings, TokenEndpoint, token_file

    if url.lower().startswith("file:"):
        return token_file(path_in_url(url), extensions)
    if is_exposed(url):
        _log.warning(
            "the client's credentials and its tokens can be read on the way to the token endpoint "
            "%s, since the connection is not encrypted: use https",
            without_login(url),
        )
    connect_ms = config.sasl_login_connect_timeout_ms
    read_ms = config.sasl_login_read_timeout_ms
    settings = EndpointSettings(
        url,
        config.sasl_oauthbearer_client_credentials_client_id or login.options.get("clientId"),
        config.sasl_oauthbearer_client_credentials_client_secret
        or login.options.get("clientSecret"),
        config.sasl_oauthbearer_scope or login.options.get("scope"),
        urlencode_header=config.sasl_oauthbearer_header_urlencode,
        jwt_bearer=config.sasl_oauthbearer_jwt_retriever_class == "jwt_bearer",
        # In Java 0 is no limit.
        connect_timeout_s=connect_ms / 1000 if connect_ms else 10.0,
        read_timeout_s=read_ms / 1000 if read_ms else 10.0,
        retry_backoff_s=config.sasl_login_retry_backoff_ms / 1000,
        retry_s=config.sasl_login_retry_backoff_max_ms / 1000,
        ca_location=config.https_ca_location,
    )
    return TokenEndpoint(
        settings, extensions=extensions, assertions=_assertions(config), rng=rng
    ).fetch


def _assertions(config: ProducerConfig) -> Assertions | None:
    ready, key = (
        config.sasl_oauthbearer_assertion_file,
        config.sasl_oauthbearer_assertion_private_key_file,
    )
    if ready is None and key is None:
        return None
    from aioproducer.net.security.assertions import (
        AssertionSettings,
        assertion_file,
        signed_assertions,
    )

    if ready is not None:
        return assertion_file(ready)
    return signed_assertions(
        AssertionSettings(
            key or "",
            config.sasl_oauthbearer_assertion_private_key_passphrase,
            algorithm=config.sasl_oauthbearer_assertion_algorithm,
            audience=config.sasl_oauthbearer_assertion_claim_aud,
            issuer=config.sasl_oauthbearer_assertion_claim_iss,
            subject=config.sasl_oauthbearer_assertion_claim_sub,
            life_s=config.sasl_oauthbearer_assertion_claim_exp_seconds,
            valid_before_s=config.sasl_oauthbearer_assertion_claim_nbf_seconds,
            with_id=config.sasl_oauthbearer_assertion_claim_jti_include,
            template_file=config.sasl_oauthbearer_assertion_template_file,
        )
    )


def _unsecured(login: JaasLogin) -> Callable[[], Awaitable[OAuthToken]]:
    """Make unsigned tokens, for development only (Java: OAuthBearerUnsecuredLogin...)."""
    life = login.options.get(_UNSECURED_LIFE, "3600")
    if not life.isdecimal():
        raise ConfigError(f"sasl_jaas_config: {_UNSECURED_LIFE} must be a number of seconds")
    life_s = int(life)
    claims = _prefixed(login, _UNSECURED_CLAIM)
    extensions = _prefixed(login, _UNSECURED_EXTENSION)

    async def make() -> OAuthToken:
        # Brokers count in ms: with a finer time, a token could be issued in their future.
        now = floor(time() * 1000) / 1000
        body = {**claims, "iat": now, "exp": now + life_s}
        parts = [_segment({"alg": "none"}), _segment(body), ""]
        return OAuthToken(".".join(parts), now + life_s, extensions)

    return make


def _segment(part: dict[str, object]) -> str:
    return urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def _prefixed(login: JaasLogin, prefix: str) -> dict[str, str]:
    options = login.options.items()
    return {name.removeprefix(prefix): value for name, value in options if name.startswith(prefix)}

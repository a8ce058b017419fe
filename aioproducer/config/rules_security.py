"""The rules between security options: what a mechanism needs, and what excludes what.

Invariant: no error repeats a secret.
"""

from __future__ import annotations

from typing import Any, Final

from aioproducer._util import log
from aioproducer.config.jaas import JaasLogin, parse_jaas
from aioproducer.errors import ConfigError

_log = log.get("producer")

PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (*PASSWORD_MECHANISMS, "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
RETRIEVERS: Final = ("client_credentials", "jwt_bearer", "file")


def check_security(values: dict[str, Any], chosen: frozenset[str]) -> None:
    """Refuse security options that do not go together."""
    _check_paths(values)
    _check_texts(values)
    _check_protocol(chosen)
    if "SASL" in values["security_protocol"]:
        _check_sasl(values, chosen)
    if "SSL" in values["security_protocol"]:
        _check_tls(values, chosen)


_PATHS: Final = {
    "ssl_truststore_location": "ssl_truststore_certificates",
    "ssl_keystore_location": "ssl_keystore_certificate_chain and ssl_keystore_key",
    "ssl_key_location": "ssl_keystore_key",
    "https_ca_location": None,
    "sasl_oauthbearer_assertion_file": None,
    "sasl_oauthbearer_assertion_private_key_file": None,
    "sasl_oauthbearer_assertion_template_file": None,
}
"""Options that are paths, and where the content goes instead."""
_LONGEST_PATH: Final = 4096


def _check_paths(values: dict[str, Any]) -> None:
    """Refuse a value that is not a path: errors name paths, and must not show a private key."""
    for name, other in _PATHS.items():
        path = values[name]
        if path is None:
            continue
        if not path:
            raise ConfigError(
                f"{name} is empty",
                advice="give a path, or leave it out; a variable that is not set is empty",
            )
        is_pem = "-----BEGIN" in path
        if is_pem or "\0" in path or "\n" in path or len(path) > _LONGEST_PATH:
            what = "PEM text" if is_pem else "something else"
            raise ConfigError(
                f"{name} must be the path of a file, not {what}",
                advice="give a path" + (f", or give the PEM text as {other}" if other else ""),
            )


_TEXTS: Final = {
    "ssl_truststore_certificates": "ssl_truststore_location",
    "ssl_keystore_certificate_chain": "ssl_keystore_location",
    "ssl_keystore_key": "ssl_key_location",
}
"""Options that are PEM text, and where a path goes instead."""
_PATH_BEGINNINGS: Final = ("/", "./", "../", "~", "\\\\", "file:")
_PATH_ENDS: Final = (
    ".pem",
    ".crt",
    ".cer",
    ".cert",
    ".key",
    ".der",
    ".p12",
    ".pfx",
    ".p8",
    ".jks",
    ".txt",
)
_BASE64_OF_PEM: Final = "LS0tLS1CRUdJTi"  # of -----BEGIN


def _check_texts(values: dict[str, Any]) -> None:
    """Refuse what is no PEM text; the texts are secret, so none is shown."""
    for name, other in _TEXTS.items():
        text = values[name]
        if text is None or "-----BEGIN" in text:
            continue
        text = text.strip()
        if _is_path(text):
            raise ConfigError(
                f"{name} must be PEM text, not the path of a file",
                advice=f"give the path as {other}",
            )
        if text.startswith(_BASE64_OF_PEM):
            raise ConfigError(
                f"{name} is PEM in base64", advice="decode it once more: base64.b64decode"
            )


def _is_path(text: str) -> bool:
    if not text or len(text) > _LONGEST_PATH or not text.isprintable():
        return False
    return (
        text.startswith(_PATH_BEGINNINGS)
        or text[1:3] in (":\\", ":/")
        or text.lower().endswith(_PATH_ENDS)
    )


def _check_protocol(chosen: frozenset[str]) -> None:
    """Security that is configured and not used is worse than none."""
    security = sorted(name for name in chosen if name.startswith(("sasl_", "ssl_")))
    if security and "security_protocol" not in chosen:
        logs_in = any(name.startswith("sasl_") for name in security)
        raise ConfigError(
            f"{security[0]} needs security_protocol, whose default is PLAINTEXT",
            advice="set security_protocol to "
            + ("SASL_SSL (or SASL_PLAINTEXT, without TLS)" if logs_in else "SSL"),
        )


def _check_sasl(values: dict[str, Any], chosen: frozenset[str]) -> None:
    mechanism = values["sasl_mechanism"]
    for name, mechanisms in _MECHANISMS_OF.items():
        if name in chosen and "sasl_mechanism" not in chosen:
            raise ConfigError(
                f"{name} needs sasl_mechanism, whose default is GSSAPI (Kerberos)",
                advice=f"set sasl_mechanism to {mechanisms}, as the broker's listener offers",
            )
    login = parse_jaas(values["sasl_jaas_config"], mechanism)
    for name in ("sasl_credentials", "sasl_oauthbearer_token"):
        if values[name] is not None and not callable(values[name]):
            raise ConfigError(f"{name} must be a function, asynchronous or not")
    if mechanism in PASSWORD_MECHANISMS:
        _check_password(values, login, mechanism)
    elif mechanism == "OAUTHBEARER":
        _check_tokens(values, login)


_MECHANISMS_OF: Final = {
    "sasl_username": "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
    "sasl_password": "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
    "sasl_credentials": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or AWS_MSK_IAM",
    "sasl_oauthbearer_token": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "OAUTHBEARER",
}
"""What the options of other mechanisms than the default one are for."""


def _check_login(name: str, text: str) -> None:
    """Refuse what no broker takes, and warn of what is rarely meant."""
    if not text:
        raise ConfigError(
            f"{name} is empty",
            advice="look where it comes from: a variable or file that is not set is empty",
        )
    if text != text.strip():
        _log.warning(
            "%s begins or ends with white space, which counts; a file or variable that it comes "
            "from may end with a line end",
            name,
        )


def _check_one_way(ways: dict[str, bool], wanted: str) -> None:
    """Refuse no way to get what is `wanted`, and several."""
    given = [name for name, is_given in ways.items() if is_given]
    if len(given) != 1:
        too_many = f"; {' and '.join(given)} are too many" if given else ""
        raise ConfigError(wanted + too_many)


def _check_password(values: dict[str, Any], login: JaasLogin, mechanism: str) -> None:
    direct = (values["sasl_username"], values["sasl_password"])
    if (direct[0] is None) != (direct[1] is None):
        missing = "sasl_username" if direct[0] is None else "sasl_password"
        raise ConfigError(
            f"sasl_username and sasl_password belong together; {missing} is missing",
            advice=f"give {missing} as well; a variable it comes from may not be set",
        )
    ways = {
        "sasl_username": direct[0] is not None,
        "sasl_credentials": values["sasl_credentials"] is not None,
        "sasl_jaas_config": bool(login.module),
    }
    _check_one_way(
        ways,
        f"{mechanism} needs credentials: sasl_username and sasl_password, or sasl_credentials, or "
        "sasl_jaas_config",
    )
    if login.module and not {"username", "password"} <= login.options.keys():
        raise ConfigError("sasl_jaas_config must give username and password")
    for name, text in (
        ("sasl_username", direct[0]),
        ("sasl_password", direct[1]),
        ("the username in sasl_jaas_config", login.options.get("username")),
        ("the password in sasl_jaas_config", login.options.get("password")),
    ):
        if text is not None:
            _check_login(name, text)


def _check_tokens(values: dict[str, Any], login: JaasLogin) -> None:
    retriever = values["sasl_oauthbearer_jwt_retriever_class"]
    if retriever is not None and retriever not in RETRIEVERS:
        raise ConfigError(
            f"sasl_oauthbearer_jwt_retriever_class must be one of {', '.join(RETRIEVERS)}",
            advice="pass an async function as sasl_oauthbearer_token for any other way",
        )
    names = ("sasl_oauthbearer_token", "sasl_oauthbearer_token_endpoint_url")
    ways = {name: values[name] is not None for name in names}
    subject = "unsecuredLoginStringClaim_sub"
    ways[f"{subject} in sasl_jaas_config"] = subject in login.options
    _check_one_way(ways, f"OAUTHBEARER needs one of {', '.join(ways)}")
    if ways["sasl_oauthbearer_token_endpoint_url"]:
        _check_endpoint(values, login)


def _check_endpoint(values: dict[str, Any], login: JaasLogin) -> None:
    url = values["sasl_oauthbearer_token_endpoint_url"]
    scheme = url.partition("://")[0].lower()
    if scheme not in ("https", "http", "file"):
        raise ConfigError("sasl_oauthbearer_token_endpoint_url must be an https:// or file:// URL")
    if scheme == "file":
        return
    if not _is_url(url):
        raise ConfigError("sasl_oauthbearer_token_endpoint_url is no URL: check its host and port")
    if "@" in url:  # wherever it is: a password that is not encoded may contain / ? and #
        raise ConfigError(
            "sasl_oauthbearer_token_endpoint_url has a user name or password",
            advice="give them as sasl_oauthbearer_client_credentials_client_id and "
            "sasl_oauthbearer_client_credentials_client_secret; write `@` in a path as %40",
        )
    asserted = (
        values["sasl_oauthbearer_assertion_file"] is not None
        or values["sasl_oauthbearer_assertion_private_key_file"] is not None
    )
    if values["sasl_oauthbearer_jwt_retriever_class"] == "jwt_bearer":
        if not asserted:
            raise ConfigError(
                "jwt_bearer needs sasl_oauthbearer_assertion_private_key_file or "
                "sasl_oauthbearer_assertion_file"
            )
        return
    client_id = values["sasl_oauthbearer_client_credentials_client_id"]
    secret = values["sasl_oauthbearer_client_credentials_client_secret"]
    if not asserted and (
        (client_id or login.options.get("clientId")) is None
        or (secret or login.options.get("clientSecret")) is None
    ):
        raise ConfigError(
            "the token endpoint needs sasl_oauthbearer_client_credentials_client_id and "
            "..._client_secret, or an assertion (sasl_oauthbearer_assertion_*)"
        )


def _is_url(text: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and parts.port != 0 and text.isprintable()
    except ValueError:
        return False


def _check_tls(values: dict[str, Any], chosen: frozenset[str]) -> None:
    import ssl

    context = values["ssl_context"]
    if context is not None:
        if not isinstance(context, ssl.SSLContext):
            raise ConfigError("ssl_context must be an ssl.SSLContext")
        if context.protocol is ssl.PROTOCOL_TLS_SERVER:
            raise ConfigError(
                "ssl_context is one of a server",
                advice="make it by ssl.create_default_context(cafile=...)",
            )
        others = sorted(n for n in chosen if n.startswith("ssl_") and n != "ssl_context")
        if others:
            raise ConfigError(f"ssl_context already says what {others[0]} would say")
    for one, other in (
        ("ssl_truststore_location", "ssl_truststore_certificates"),
        ("ssl_keystore_location", "ssl_keystore_certificate_chain"),
        ("ssl_keystore_key", "ssl_key_location"),
    ):
        if values[one] is not None and values[other] is not None:
            raise ConfigError(f"{one} and {other} exclude each other")
    chain = values["ssl_keystore_certificate_chain"] is not None
    key = values["ssl_keystore_key"] is not None or values["ssl_key_location"] is not None
    if chain and not key:
        raise ConfigError(
            "ssl_keystore_certificate_chain needs ssl_keystore_key",
            advice="give the private key as ssl_keystore_key, or its path as ssl_key_location",
        )
    if key and not chain and values["ssl_keystore_location"] is None:
        name = "ssl_key_location" if values["ssl_keystore_key"] is None else "ssl_keystore_key"
        raise ConfigError(
            f"{name} needs the certificate that belongs to the private key",
            advice="give its path as ssl_keystore_location, or its PEM text as "
            "ssl_keystore_certificate_chain",
        )

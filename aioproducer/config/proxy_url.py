"""Reading the URL of a proxy, such as `socks5://user:password@host:port`.

Invariant: no error, text or repr shows the user name or the password.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from aioproducer._util.hosts import is_host
from aioproducer._util.secrets import Unpicklable, hides_arguments
from aioproducer.errors import ConfigError

_SCHEMES: Final = ("socks5", "socks5h", "http")
_LONGEST_SOCKS_FIELD: Final = 255


@dataclass(frozen=True, slots=True)
class ProxyUrl(Unpicklable):
    """A proxy, how to talk to it, and what to show it."""

    scheme: str
    host: str
    port: int
    username: bytes | None = field(default=None, repr=False)
    password: bytes = field(default=b"", repr=False)

    @property
    def resolves_names(self) -> bool:
        """Whether the proxy gets the brokers' names; else we resolve them (as curl: socks5)."""
        return self.scheme != "socks5"


@hides_arguments
def parse_proxy_url(url: str) -> ProxyUrl:
    """Return the proxy a URL means; user name and password may be percent-encoded."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError("proxy_url is no URL: check its brackets and its port") from None
    if parts.scheme not in _SCHEMES:
        raise ConfigError(
            f"proxy_url must start with {', '.join(f'{name}://' for name in _SCHEMES)}",
            advice="with socks5h and http the proxy resolves the brokers' names",
        )
    if host and ":" in host:
        host = host.replace("%25", "%", 1)  # the zone of an IPv6 address (RFC 6874)
    if not host or not is_host(host) or not port:
        raise ConfigError("proxy_url must name host and port, as in socks5://proxy:1080")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigError(
            "proxy_url must end with the port",
            advice="in user name and password, encode / ? # and @ (%2F %3F %23 %40)",
        )
    username, password = _login(parts.scheme, parts.username, parts.password)
    return ProxyUrl(parts.scheme, host, port, username, password)


def _login(scheme: str, username: str | None, password: str | None) -> tuple[bytes | None, bytes]:
    if username is None:
        return None, b""
    from urllib.parse import unquote_to_bytes

    try:
        name, word = unquote_to_bytes(username), unquote_to_bytes(password or "")
    except UnicodeEncodeError:
        raise ConfigError("user name and password in proxy_url are not valid UTF-8 text") from None
    if scheme == "http":
        if b":" in name:
            raise ConfigError("the user name in proxy_url must not contain a colon (RFC 7617)")
    elif not (0 < len(name) <= _LONGEST_SOCKS_FIELD and len(word) <= _LONGEST_SOCKS_FIELD):
        raise ConfigError(
            "user name and password in proxy_url may have up to 255 bytes each (RFC 1929), and "
            "there must be a user name"
        )
    return name, word

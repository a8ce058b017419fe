"""The texts that may be used as a host, and how one is written with its port.

Host names and addresses come from brokers, too: what does not pass here reaches no resolver, no
proxy and no request.
"""

from __future__ import annotations

import ipaddress
import re

_LABEL = "[A-Za-z0-9_-]{1,63}"
_NAME = re.compile(rf"(?=.{{1,255}}\Z){_LABEL}(?:\.{_LABEL})*\.?")
_ZONE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LONGEST = 255


def is_host(text: str) -> bool:
    """Return whether `text` is an IP address, with a zone if any, or a host name, in any script."""
    if _NAME.fullmatch(text):
        return True
    if len(text) > _LONGEST:
        return False
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return _is_international(text)
    zone = getattr(address, "scope_id", None)
    return zone is None or _ZONE.fullmatch(zone) is not None


def host_and_port(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def name_for_tls(host: str) -> str:
    """Return the name that a certificate has of a host: without a final dot or an IPv6 zone."""
    return host.partition("%")[0].rstrip(".")


def is_this_machine(text: str) -> bool:
    """Return whether what is sent to this host stays on this machine."""
    name = text.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def is_exposed(url: str) -> bool:
    """Return whether what is sent to a URL can be read on the way: HTTP to another machine."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return parts.scheme == "http" and not is_this_machine(parts.hostname or "")


def _is_international(text: str) -> bool:
    try:
        return _NAME.fullmatch(text.encode("idna").decode("ascii")) is not None
    except UnicodeError:
        return False

"""Stands for aiokafka's `tests/conftest.py`: brokers that run already, in place of its container.

Its own one is imported from `their_conftest.py`, where the runner has put it. Kerberos is skipped.
"""

import os
import pathlib
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from .their_conftest import *  # noqa: F403
from .their_conftest import pytest_addoption, pytest_configure  # noqa: F401

_BOOTSTRAP = os.environ["AIOPRODUCER_COMPAT_BOOTSTRAP"]
_VERSION = os.environ["AIOPRODUCER_COMPAT_KAFKA"]
_WAIT_S = 20
_WHAT = ("topic", "group", "transactional_id", "cluster")


class AccessControl:
    """Adds rules by the names that the tests use, and removes them."""

    def __init__(self):
        self._admin = AdminClient({"bootstrap.servers": _BOOTSTRAP})
        self._rules = []

    def add_acl(self, **rule):
        """Add a rule."""
        bindings = list(_bindings(**rule))
        for future in self._admin.create_acls(bindings).values():
            future.result(_WAIT_S)
        self._rules += bindings

    def list_acl(self, principal=None):
        """Nothing depends on it."""

    def cleanup(self):
        """Remove every rule."""
        rules, self._rules = [_filter_of(each) for each in self._rules], []
        for future in self._admin.delete_acls(rules).values() if rules else ():
            future.result(_WAIT_S)


def _bindings(operation=None, allow_principal=None, deny_principal=None, **where):
    kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    for name, kind in zip(_WHAT, (*kinds, ResourceType.BROKER), strict=True):
        if where.get(name):
            yield AclBinding(
                kind,
                "kafka-cluster" if name == "cluster" else where[name],
                ResourcePatternType.LITERAL,
                f"User:{allow_principal or deny_principal}",
                "*",
                AclOperation[(operation or "All").upper()],
                AclPermissionType.ALLOW if allow_principal else AclPermissionType.DENY,
            )


def _filter_of(rule):
    place = (rule.restype, rule.name, rule.resource_pattern_type)
    return AclBindingFilter(*place, rule.principal, rule.host, rule.operation, rule.permission_type)


class Users:
    """Users of SCRAM."""

    def add_scram_user(self, username, password):
        """Give a user a password."""
        admin = AdminClient({"bootstrap.servers": _BOOTSTRAP})
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            information = ScramCredentialInfo(kind, 4096)
            wanted = UserScramCredentialUpsertion(username, information, password.encode())
            for future in admin.alter_user_scram_credentials([wanted]).values():
                future.result(_WAIT_S)


class _NoKerberos:
    def __getattr__(self, name):
        pytest.skip("there is no Kerberos here")


@pytest.fixture(scope="session")
def docker():
    """No container."""


@pytest.fixture(scope="session")
def kafka_image():
    """A name with the version of the brokers."""
    return f"kafka:{_VERSION}"


@pytest.fixture(scope="session")
def ssl_folder():
    """Certificates."""
    return pathlib.Path(os.environ["AIOPRODUCER_COMPAT_CERTIFICATES"])


@pytest.fixture(scope="class")
def acl_manager():
    """Access control."""
    return AccessControl()


@pytest.fixture(scope="class")
def kafka_config():
    """Users."""
    return Users()


@pytest.fixture(scope="class")
def kerberos_utils():
    """No Kerberos."""
    return _NoKerberos()


@pytest.fixture(scope="session")
def kafka_server():
    """The brokers."""
    host, _, port = _BOOTSTRAP.rpartition(":")
    return SimpleNamespace(
        host=host,
        port=int(port),
        ssl_port=int(os.environ["AIOPRODUCER_COMPAT_TLS"].rpartition(":")[2]),
        sasl_plain_port=int(os.environ["AIOPRODUCER_COMPAT_USERS"].rpartition(":")[2]),
        sasl_ssl_port=None,
        container=None,
        hosts=[_BOOTSTRAP],
    )


@pytest.fixture(scope="class")
def setup_test_class(
    request, loop, kafka_server, ssl_folder, acl_manager, kerberos_utils, kafka_config
):
    """Attributes of the classes of tests."""
    cls = request.cls
    cls.loop, cls.kafka_version = loop, _VERSION
    cls.kafka_host, cls.kafka_port = kafka_server.host, kafka_server.port
    cls.kafka_ssl_port, cls.kafka_sasl_ssl_port = kafka_server.ssl_port, None
    cls.kafka_sasl_plain_port, cls.hosts = kafka_server.sasl_plain_port, kafka_server.hosts
    cls.ssl_folder, cls.acl_manager = ssl_folder, acl_manager
    cls.kerberos_utils, cls.kafka_config = kerberos_utils, kafka_config

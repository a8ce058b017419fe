"""`--value-avro`: the schema of the values."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from aioproducer.cli.registry_login import URL, VARIABLES, registry_options
from aioproducer.errors import ConfigError
from aioproducer.loader import AvroValues, avro_values
from aioproducer.serializers import SchemaRegistry

LATEST = "latest"


def avro_encoder(
    wanted: str | None,
    url: str | None,
    topic: str,
    *,
    register: bool,
    ignore_rules: bool = False,
    given: Mapping[str, str] | None = None,
) -> AvroValues | None:
    """Return the encoder of rows; None where Avro is not requested.

    `given` has the registry's options in the configuration, see `registry_login`.
    """
    if wanted is None:
        if url is not None or register or ignore_rules:
            raise ConfigError(
                "--schema-registry, --register-schema and --ignore-schema-rules go with "
                "--value-avro"
            )
        return None
    address, login = registry_options(url, given or {})
    if address is None:
        raise ConfigError(
            "--value-avro needs --schema-registry",
            advice=f"or {URL} in the file of --config, or {VARIABLES[URL]} in the environment",
        )
    if wanted == LATEST and register:
        raise ConfigError("--register-schema needs a schema: --value-avro FILE")
    try:
        schema = None if wanted == LATEST else Path(wanted).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read the schema {wanted}: {reason}") from error

    async def ask() -> AvroValues:
        async with SchemaRegistry(address, **login) as registry:
            return await avro_values(
                registry, topic, schema, register=register, ignore_rules=ignore_rules
            )

    return asyncio.run(ask())

"""Names of other clients' options that set nothing here: accepted without effect, or refused.

A name is refused where ignoring it would change what a program relies on: a callback that would
never be called, a check that would not be made, an order or a guarantee. What configures something
else than a producer, or the insides of another client, has no effect.
"""

from __future__ import annotations

from typing import Final

from aioproducer.config.verdicts import Refused, WithoutEffect

_CONSUMERS: Final = "it configures consumers"
_STREAMS: Final = "it configures Kafka Streams"
_CONNECT: Final = "it configures Kafka Connect"
_SERIALIZERS: Final = (
    "it configures Confluent's serializers; here `aioproducer.serializers` has them, with arguments"
)
_INSIDES: Final = "it tunes the insides of another client"

TRUTHS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
"""The truth values of librdkafka, in small letters."""
_TRUE: Final = tuple(text for text, truth in TRUTHS.items() if truth)
_FALSE: Final = tuple(text for text, truth in TRUTHS.items() if not truth)

_NAMES_WITHOUT_EFFECT: Final = {
    _CONSUMERS: """
        auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs
        consume.callback.max.messages consume_cb consumer_timeout_ms coordinator.query.interval.ms
        default.api.timeout.ms default_offset_commit_callback deserializer.encoding
        dual.commit.enabled enable.auto.commit enable.auto.offset.store
        enable_incremental_fetch_sessions enable.partition.eof exclude.internal.topics
        fetch.error.backoff.ms fetch.max.bytes fetch.max.wait.ms fetch.message.max.bytes
        fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id group.instance.id
        group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms
        internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported
        isolation.level key.deserializer key.deserializer.encoding max.partition.fetch.bytes
        max.poll.interval.ms max.poll.records num.consumer.fetchers offset_commit_cb
        offset.store.method offset.store.path offset.store.sync.interval.ms
        offsets.channel.backoff.ms offsets.channel.socket.timeout.ms offsets.commit.max.retries
        offsets.storage on_assign on_commit on_lost on_revoke partition.assignment.strategy
        queued.max.message.chunks queued.max.messages.kbytes queued.min.messages
        rebalance.backoff.ms rebalance_cb rebalance.max.retries rebalance.timeout.ms
        refresh.leader.backoff.ms session.timeout.ms share.acknowledgement.mode share.acquire.mode
        topic.blacklist value.deserializer value.deserializer.encoding zookeeper.connect
        zookeeper.connection.timeout.ms zookeeper.session.timeout.ms zookeeper.sync.time.ms
    """,
    _STREAMS: """
        acceptable.recovery.lag allow.os.group.write.access application.id application.server
        buffered.records.per.partition built.in.metrics.version cache.max.bytes.buffering
        commit.interval.ms default.client.supplier default.deserialization.exception.handler
        default.dsl.store default.key.serde default.list.key.serde.inner
        default.list.key.serde.type default.list.value.serde.inner default.list.value.serde.type
        default.production.exception.handler default.timestamp.extractor default.value.serde
        default.windowed.key.serde.inner default.windowed.value.serde.inner
        deserialization.exception.handler dsl.store.format dsl.store.suppliers.class
        ensure.explicit.internal.resource.naming errors.dead.letter.queue.topic.name key.serde
        log.summary.interval.ms max.task.idle.ms max.warmup.replicas num.standby.replicas
        num.stream.threads partition.grouper poll.ms probing.rebalance.interval.ms
        processing.exception.handler processing.exception.handler.global.enabled
        processor.wrapper.class production.exception.handler rack.aware.assignment.non_overlap_cost
        rack.aware.assignment.strategy rack.aware.assignment.tags
        rack.aware.assignment.traffic_cost repartition.purge.interval.ms replication.factor
        rocksdb.config.setter state.cleanup.delay.ms state.cleanup.dir.max.age.ms state.dir
        statestore.cache.max.bytes task.assignor.class task.timeout.ms timestamp.extractor
        topology.optimization upgrade.from value.serde window.size.ms windowed.inner.class.serde
        windowstore.changelog.additional.retention.ms
    """,
    _CONNECT: """
        access.control.allow.methods access.control.allow.origin admin.listeners
        config.action.reload config.storage.replication.factor config.storage.topic
        connect.protocol connector.class connector.client.config.override.policy
        connector.plugin.version converter.encoding converter.type
        errors.deadletterqueue.context.headers.enable errors.deadletterqueue.topic.name
        errors.deadletterqueue.topic.replication.factor errors.log.enable
        errors.log.include.messages errors.retry.delay.max.ms errors.retry.timeout errors.tolerance
        exactly.once.source.support exactly.once.support header.converter
        header.converter.plugin.version inter.worker.key.generation.algorithm inter.worker.key.size
        inter.worker.key.ttl.ms inter.worker.signature.algorithm
        inter.worker.verification.algorithms internal.key.converter internal.value.converter
        key.converter key.converter.plugin.version listeners name offset.flush.interval.ms
        offset.flush.timeout.ms offset.storage.file.filename offset.storage.partitions
        offset.storage.replication.factor offset.storage.topic offsets.storage.topic
        plugin.discovery plugin.path predicates replace.null.with.default
        response.http.headers.config rest.advertised.host.name rest.advertised.listener
        rest.advertised.port rest.extension.classes rest.host.name rest.port
        scheduled.rebalance.max.delay.ms schema.content schemas.cache.size schemas.enable
        ssl.client.auth status.storage.partitions status.storage.replication.factor
        status.storage.topic task.shutdown.graceful.timeout.ms tasks.max tasks.max.enforce
        topic.creation.enable topic.creation.groups topic.tracking.allow.reset
        topic.tracking.enable topics topics.regex transaction.boundary
        transaction.boundary.interval.ms transforms value.converter value.converter.plugin.version
        worker.sync.timeout.ms worker.unsync.backoff.ms
    """,
    _SERIALIZERS: """
        allow.optional.map.keys auto.register.schemas avro.fail.on.trailing.data
        avro.reflection.allow.null avro.remove.java.properties avro.use.logical.type.converters
        basic.auth.credentials.source basic.auth.user.info
        bearer.auth.cache.expiry.buffer.seconds bearer.auth.client.id bearer.auth.client.secret
        bearer.auth.credentials.source bearer.auth.custom.provider.class
        bearer.auth.identity.pool.id bearer.auth.issuer.endpoint.url bearer.auth.logical.cluster
        bearer.auth.scope bearer.auth.scope.claim.name bearer.auth.sub.claim.name
        bearer.auth.token bearer.auth.uami.endpoint.query bearer.auth.uami.endpoint.url
        composite.confluent.deserializer composite.old.deserializer connect.meta.data
        context.name.strategy decimal.format derive.type enhanced.avro.schema.support
        enhanced.protobuf.schema.support execution.environment flatten.singleton.unions
        flatten.unions generalized.sum.type.support generate.index.for.unions
        generate.struct.for.nulls http.connect.timeout.ms http.read.timeout.ms
        id.compatibility.strict ignore.default.for.nullables ignore.modern.dialects
        int.for.enums json.default.property.inclusion json.envelope.detection
        json.fail.invalid.schema json.fail.unknown.properties json.indent.output json.key.type
        json.oneof.for.nullables json.schema.scan.packages json.schema.spec.version
        json.type.allowed.packages json.validate.before.domain.rules json.value.type
        key.schema.id.deserializer key.schema.id.serializer key.subject.name.strategy
        latest.cache.size latest.cache.ttl.sec latest.compatibility.strict
        max.schemas.per.subject missing.cache.size missing.dek.cache.ttl.sec
        missing.id.cache.ttl.sec missing.kek.cache.ttl.sec missing.schema.cache.ttl.sec
        missing.version.cache.ttl.sec normalize.schemas object.additional.properties
        optional.for.nullables preserve.additional.properties propagate.schema.tags proxy.host
        proxy.port reference.lookup.only reference.subject.name.strategy retries.max.wait.ms
        retries.wait.ms rule.actions rule.executors rule.metrics.enable
        rule.service.loader.enable schema.format schema.reflection
        schema.registry.basic.auth.user.info schema.registry.url schema.registry.url.randomize
        schemas.cache.config scrub.invalid.names skip.known.types specific.avro.key.type
        specific.avro.reader specific.avro.value.type specific.protobuf.key.type
        specific.protobuf.value.type type.property url.randomize use.apache.http.client
        use.latest.version use.latest.with.metadata use.optional.for.nonrequired use.schema.guid
        use.schema.id validation.rules.execution validation.rules.executor.class
        validation.rules.fail.fast value.schema.id.deserializer value.schema.id.serializer
        value.subject.name.strategy wrapped.key.deserializer wrapped.key.serializer
        wrapper.for.nullables wrapper.for.raw.primitives
    """,
    _INSIDES: """
        api.version.fallback.ms api.version.request api.version.request.timeout.ms
        api_version_auto_timeout_ms bootstrap_topics_filter sock_chunk_buffer_count sock_chunk_bytes
        broker.address.ttl builtin.features delivery.report.only.error enable.random.seed
        internal.auto.downgrade.txn.commit internal.termination.signal message.copy.max.bytes
        metric_group_prefix metrics_enabled produce.offset.report
        queue.buffering.backpressure.threshold receive.message.max.bytes
        reconnect.backoff.jitter.ms selector send_backoff_ms socket.blocking.max.ms socket.max.fails
        sticky.partitioning.linger.ms topic.metadata.refresh.fast.cnt
        topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse
    """,
    "brokers report their versions; `broker_version_fallback` is for those before 0.10": """
        api_version
    """,
    "all addresses of a name are tried in turn, of either family": "broker.address.family",
    "connections are kept alive and send at once": "socket.keepalive.enable socket.nagle.disable",
    "`max_block_ms` bounds every wait for the cluster and for a topic": """
        bootstrap_timeout_ms topic.metadata.propagation.max.ms
    """,
    "the producer runs in the loop that starts it": "loop",
    "logs go to Python's loggers below `aioproducer`": """
        debug log.connection.close log_level log.queue log.thread.name logger
    """,
    "statistics are asked for, by `statistics()`": "statistics.interval.ms",
    "there is no JMX": "auto.include.jmx.reporter",
    "it configures how brokers check tokens": """
        sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer
        sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
        sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name
        sasl.oauthbearer.sub.claim.name
    """,
    "the system's Kerberos library gets and renews tickets": """
        sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    """,
    "OpenSSL reads keys and certificates; those of the system are trusted by default": """
        ssl.ca.certificate.stores ssl.keymanager.algorithm ssl.secure.random.implementation
        ssl.trustmanager.algorithm
    """,
}

_FUNCTION_FOR_TOKENS: Final = (
    "pass an async function that returns the token as `sasl_oauthbearer_token`"
)
_CALLBACK: Final = "it would never be called"
_OWN_CONTEXT: Final = "pass an `ssl.SSLContext` that does so as `ssl_context`"
_DIALER: Final = "pass an async function that opens the connection as `dialer`"

_REFUSED: Final[dict[str, Refused]] = {
    "dr_cb dr_msg_cb on_delivery": Refused(
        _CALLBACK,
        "await the delivery that send() returns, or give it a callback by add_done_callback()",
    ),
    "error_cb": Refused(
        _CALLBACK,
        "errors are raised by what is awaited; `on_delivery_error` has those of dropped "
        "deliveries, the logger `aioproducer.net` those of connections",
    ),
    "stats_cb": Refused(_CALLBACK, "call statistics(), or pass `metric_reporters`"),
    "throttle_cb": Refused(_CALLBACK, "read the metric produce-throttle-time-avg"),
    "log_cb": Refused(_CALLBACK, "add a handler to the logger `aioproducer`"),
    "oauth_cb oauthbearer_token_refresh_cb": Refused(_CALLBACK, _FUNCTION_FOR_TOKENS),
    "partitioner_cb": Refused(_CALLBACK, "pass a function as `partitioner`"),
    "closesocket_cb connect_cb open_cb resolve_cb socket_cb": Refused(_CALLBACK, _DIALER),
    "background_event_cb enabled_events opaque ssl_engine_callback_data": Refused(
        "it belongs to librdkafka's C interface", "leave it out"
    ),
    "msg_order_cmp queuing.strategy": Refused(
        "records of a partition are sent in the order of the calls", "leave it out", ("fifo",)
    ),
    "enable.gapless.guarantee": Refused(
        "a batch that fails does not end the producer",
        "set `transactional_id` and send what belongs together in a transaction",
        _FALSE,
    ),
    "interceptors plugin.library.paths": Refused(
        "native plugins are not loaded", "pass objects as `interceptor_classes`"
    ),
    "default.topic.config default_topic_conf": Refused(
        "options hold for all topics", "write its entries beside the other options"
    ),
    "kafka_client": Refused("the network client cannot be replaced", _DIALER),
    "socket_options": Refused("options of sockets are fixed", _DIALER),
    "enable.ssl.certificate.verification": Refused(
        "brokers' certificates are always verified", _OWN_CONTEXT, _TRUE
    ),
    "security.providers ssl_ca ssl.certificate.verify_cb ssl_certificate ssl.crl.location "
    "ssl_crlfile ssl.curves.list ssl.engine.id ssl.engine.location ssl_key ssl.provider "
    "ssl.providers ssl.sigalgs.list": Refused(
        "Python's ssl module is what connections use", _OWN_CONTEXT
    ),
    "https.ca.pem": Refused(
        "the authorities of token endpoints are read from a file",
        "name the file in `https_ca_location`",
    ),
    "sasl.oauthbearer.method": Refused(
        "it is `oidc` or `default`", _FUNCTION_FOR_TOKENS, ("oidc", "default")
    ),
    "sasl.oauthbearer.metadata.authentication.type": Refused(
        "tokens are not fetched from a cloud's metadata service", _FUNCTION_FOR_TOKENS, ("none",)
    ),
    "sasl_oauth_token_provider sasl.oauthbearer.config": Refused(
        "tokens come from a function or from a token endpoint", _FUNCTION_FOR_TOKENS
    ),
    "enable.sasl.oauthbearer.unsecure.jwt": Refused(
        "unsigned tokens are configured as in Java",
        "set `unsecuredLoginStringClaim_sub` in `sasl_jaas_config`",
        _FALSE,
    ),
    "sasl.oauthbearer.assertion.private.key.pem": Refused(
        "the key that signs assertions is read from a file",
        "name the file in `sasl_oauthbearer_assertion_private_key_file`",
    ),
    "sasl.kerberos.keytab sasl.kerberos.principal": Refused(
        "kinit is not run",
        "set `sasl_jaas_config` to Krb5LoginModule required useKeyTab=true "
        'keyTab="FILE" principal="NAME";',
    ),
    "sasl_kerberos_domain_name sasl_kerberos_name": Refused(
        "brokers' principals go by their host", "set `sasl_kerberos_service_name`"
    ),
    "sasl.login.class": Refused("this client renews logins itself", "leave it out"),
    "bootstrap.controllers": Refused(
        "producers do not talk to controllers", "name brokers in `bootstrap_servers`"
    ),
    "processing.guarantee": Refused(
        "it configures Kafka Streams",
        "set `transactional_id`, and send records and offsets in a transaction",
        ("at_least_once",),
    ),
    "key.serializer.encoding serializer.encoding value.serializer.encoding": Refused(
        "text is UTF-8",
        "pass aioproducer.serializers.StringSerializer(encoding) as the serializer",
        ("utf-8", "utf8"),
    ),
    "max.retries": Refused(
        "it configures Confluent's schema registry client", "set `retries` for the producer"
    ),
}

ELSEWHERE: Final[dict[str, WithoutEffect | Refused]] = {
    **{
        name: WithoutEffect(reason)
        for reason, names in _NAMES_WITHOUT_EFFECT.items()
        for name in names.split()
    },
    **{name: verdict for names, verdict in _REFUSED.items() for name in names.split()},
}
"""By the name that the other client documents."""

PREFIXES: Final = {
    prefix: reason
    for reason, prefixes in {
        "it configures an admin client": "admin.",
        "it configures Apicurio's serializers": "apicurio.",
        "`config.providers` does not name the provider": "config.providers.",
        "it configures an interceptor of Java's": "confluent.monitoring.",
        "metrics have no context": "metrics.context.",
        _CONSUMERS: "consumer. global.consumer. main.consumer. restore.consumer.",
        _STREAMS: "client.tag.",
        _CONNECT: "header.converter. key.converter. listeners.https. predicates. transforms. "
        "value.converter.",
        _SERIALIZERS: "request.header. rule.actions. rule.executors. schema.registry.",
    }.items()
    for prefix in prefixes.split()
}
"""Beginnings of names without effect, and why."""

FOR_PRODUCERS: Final = ("producer.override.", "producer.")
"""What names begin with that are for the producers inside Kafka Connect and Kafka Streams."""

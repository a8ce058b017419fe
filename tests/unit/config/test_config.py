"""Values, rules between options, and the configuration object."""

import copy
import dataclasses
import functools
import inspect
import pickle
import random

import pytest

from aioproducer import Producer
from aioproducer.config import OPTIONS, Kind, ProducerConfig
from aioproducer.errors import ConfigError


def config(**options) -> ProducerConfig:
    return ProducerConfig(**{"bootstrap_servers": "broker:9092"} | options)


# -- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("linger_ms", [0, 5, 2**40], [-1, 2**63, 1.5, "5", True, None]),
        ("batch_size", [1, 2**31 - 1], [-1, 2**31]),
        ("buffer_memory", [0, 2**40], [-1]),
        ("max_request_size", [0], [-1]),
        ("retries", [0, 2**31 - 1], [-1, 2**31]),
        ("max_in_flight_requests_per_connection", [1, 5], [0]),
        ("metadata_max_idle_ms", [5_000], [4_999]),
        ("metadata_max_age_ms", [0, -1], [-2]),
        ("connections_max_idle_ms", [-1, 0], [-2]),
        ("send_buffer_bytes", [-1, 0], [-2]),
        ("receive_buffer_bytes", [-1, 0], [-2]),
        ("compression_type", ["none", "gzip", "snappy", "lz4", "zstd"], ["GZIP", "brotli", None]),
        ("compression_gzip_level", [-1, 1, 9], [0, 10]),
        ("compression_lz4_level", [1, 17], [0, 18, -1]),
        ("compression_zstd_level", [-131_072, 22], [-131_073, 23]),
        (
            "broker_version_fallback",
            ["0.8.2", "0.9.0.1", "4.1"],
            ["", "9", "0.9.", "a.b", "0.\uff19", None],
        ),
        ("client_dns_lookup", ["resolve_canonical_bootstrap_servers_only"], ["default"]),
        ("allow_auto_create_topics", [True, False], [1, "true", None]),
        ("key_serializer", [str.encode, None], ["utf-8", 5]),
        ("on_delivery_error", [print, None], ["log"]),
        ("partitioner_ignore_keys", [True], [0]),
        ("security_protocol", ["PLAINTEXT", "plaintext"], ["TLS"]),
        ("metrics_recording_level", ["INFO"], ["info"]),
    ],
)
def test_values_in_range_are_kept_and_others_are_refused(name, good, bad):
    for value in good:
        kept = getattr(config(**{name: value}), name)
        assert kept == (value.upper() if value == "plaintext" else value)
    for value in bad:
        with pytest.raises(ConfigError, match=name):
            config(**{name: value})


def test_a_batch_size_of_zero_means_batches_of_one_record():
    assert config(batch_size=0).batch_size == 1


@pytest.mark.parametrize(
    ("given", "kept", "on_the_wire"),
    [("all", "all", -1), ("-1", "all", -1), (-1, "all", -1), ("0", 0, 0), (0, 0, 0), ("1", 1, 1)],
)
def test_acks_are_read_in_all_spellings(given, kept, on_the_wire):
    read = config(acks=given)
    assert (read.acks, read.acks_value) == (kept, on_the_wire)


@pytest.mark.parametrize("bad", [2, "2", "ALL", True, 1.5, None])
def test_other_acks_are_refused(bad):
    with pytest.raises(ConfigError, match="acks"):
        config(acks=bad)


def test_the_compression_level_is_that_of_the_chosen_codec():
    assert config(compression_type="zstd").compression_level == 3
    assert config(compression_type="lz4", compression_lz4_level=1).compression_level == 1
    assert config(compression_type="gzip").compression_level is None
    assert config(compression_type="gzip", compression_gzip_level=6).compression_level == 6
    assert config(compression_type="snappy").compression_level is None
    assert config().compression_level is None


def test_a_partitioner_may_be_a_name_a_function_or_an_object_but_no_class():
    class Fixed:
        def partition(self, topic, key, value, cluster):
            return 0

    fixed = Fixed()
    assert config(partitioner=fixed).partitioner is fixed
    assert config(partitioner=len).partitioner is len
    for bad in ("sticky", Fixed, 5, None):
        with pytest.raises(ConfigError, match="partitioner"):
            config(partitioner=bad)


def test_a_partitioner_whose_result_would_have_to_be_awaited_is_refused():
    async def look_up(topic, key, value, cluster):
        return 0

    class Asynchronous:
        async def partition(self, topic, key, value, cluster):
            return 0

    class Callable:
        async def __call__(self, topic, key, value, cluster):
            return 0

    for bad in (look_up, functools.partial(look_up), Asynchronous(), Callable()):
        with pytest.raises(ConfigError, match="partitioner must be a plain function"):
            config(partitioner=bad)


# -- bootstrap servers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("Kafka-1:9092", (("kafka-1", 9092),)),
        (" a:1 , b:2,", (("a", 1), ("b", 2))),
        (["a:1", "b:2"], (("a", 1), ("b", 2))),
        (("10.0.0.1:65535",), (("10.0.0.1", 65535),)),
        ("[::1]:9092,[fe80::1%eth0]:9093", (("::1", 9092), ("fe80::1%eth0", 9093))),
        ("my_broker.svc.local.:9092", (("my_broker.svc.local.", 9092),)),
    ],
)
def test_bootstrap_servers_are_read(given, addresses):
    assert config(bootstrap_servers=given).bootstrap == addresses


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "empty"),
        ([], "empty"),
        ("broker", "not host:port"),
        ("broker:", "not host:port"),
        (":9092", "not host:port"),
        ("::1:9092", "not host:port"),
        ("broker:0", "port outside"),
        ("broker:65536", "port outside"),
        ("broker:909\uff12", "not host:port"),  # a full-width digit
        ("kafka://broker:9092", "scheme"),
        ("SSL://broker:9092", "scheme"),
        (5, "bootstrap_servers must be"),
        (None, "bootstrap_servers must be"),
        ([b"a:1"], "bootstrap_servers must be"),
    ],
)
def test_bad_bootstrap_servers_are_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        config(bootstrap_servers=given)


def test_a_bootstrap_server_that_is_named_again_counts_once():
    assert config(bootstrap_servers="a:1,b:1,A:1,a:2").bootstrap == (("a", 1), ("b", 1), ("a", 2))


def test_bootstrap_servers_must_be_given():
    with pytest.raises(ConfigError, match="bootstrap_servers must be given"):
        ProducerConfig()


# -- rules between options ---------------------------------------------------------------------


def test_a_default_delivery_timeout_is_raised_and_a_chosen_one_is_refused(caplog):
    raised = config(linger_ms=100_000, request_timeout_ms=50_000)
    assert raised.delivery_timeout_ms == 150_000
    assert "delivery_timeout_ms is raised" in caplog.text
    assert config(delivery_timeout_ms=30_005).delivery_timeout_ms == 30_005
    with pytest.raises(ConfigError, match=r"delivery_timeout_ms=30004 .* = 30005"):
        config(delivery_timeout_ms=30_004)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"request_timeout_ms": 30}, "request_timeout_ms=30"),
        (
            {"request_timeout_ms": 60, "delivery_timeout_ms": 120, "transaction_timeout_ms": 60},
            "request_timeout_ms=60, delivery_timeout_ms=120, transaction_timeout_ms=60",
        ),
        ({"metadata_max_age_ms": 300}, "metadata_max_age_ms=300"),
        ({"connections_max_idle_ms": 540}, "connections_max_idle_ms=540"),
        ({"socket_connection_setup_timeout_ms": 10}, "socket_connection_setup_timeout_ms=10"),
        ({}, None),
        ({"request_timeout_ms": 1000, "connections_max_idle_ms": 0, "max_block_ms": 60}, None),
    ],
)
def test_times_that_look_like_seconds_are_warned_of_once(options, named, caplog):
    config(**options)
    expected = [f"{named}: looks like seconds; give milliseconds"] if named else []
    assert [record.getMessage() for record in caplog.records] == expected


def test_the_sum_that_the_delivery_timeout_defaults_to_stops_at_kafkas_largest_int():
    settled = config(linger_ms=2**40, request_timeout_ms=1)
    assert settled.delivery_timeout_ms == 2**31 - 1


def test_a_reconnect_backoff_without_a_maximum_switches_growth_off():
    assert config(reconnect_backoff_ms=70).reconnect_backoff_max_ms == 70
    assert config().reconnect_backoff_max_ms == 1_000
    both = config(reconnect_backoff_ms=70, reconnect_backoff_max_ms=90)
    assert both.reconnect_backoff_max_ms == 90


def test_clients_without_a_name_are_numbered():
    first, second = config(), config()
    numbers = [int(c.client_id.removeprefix("producer-")) for c in (first, second)]
    assert numbers[1] == numbers[0] + 1
    assert config(client_id="").client_id == ""


@pytest.mark.parametrize("options", [{"acks": 1}, {"acks": "0"}, {"retries": 0}])
def test_options_that_exclude_idempotence_switch_a_default_off_and_contradict_a_wish(options):
    assert not config(**options).effective_idempotence
    assert not config(**options, enable_idempotence=False).effective_idempotence
    with pytest.raises(ConfigError, match="contradicts"):
        config(**options, enable_idempotence=True)


def test_more_than_five_requests_in_flight_need_idempotence_switched_off_in_words():
    six = {"max_in_flight_requests_per_connection": 6}
    for options in (six, six | {"enable_idempotence": True}, six | {"acks": 1}):
        with pytest.raises(ConfigError, match="max_in_flight_requests_per_connection=6"):
            config(**options)
    assert not config(**six, enable_idempotence=False).effective_idempotence


def test_idempotence_is_on_unless_something_excludes_it():
    for wish in ({}, {"enable_idempotence": None}, {"enable_idempotence": True}):
        assert config(**wish).effective_idempotence


def test_transactions_contradict_what_excludes_idempotence():
    for option in ({"acks": 1}, {"retries": 0}, {"enable_idempotence": False}):
        named = "{}={}".format(*next(iter(option.items())))
        with pytest.raises(ConfigError, match=f"transactional_id needs idempotence.* {named}"):
            config(transactional_id="t", **option)
    with pytest.raises(ConfigError, match="contradicts transaction_timeout_ms"):
        config(transaction_two_phase_commit_enable=True, transaction_timeout_ms=60_000)


# -- the object --------------------------------------------------------------------------------


def test_a_config_cannot_be_changed():
    with pytest.raises(AttributeError):
        config().linger_ms = 7


def test_the_repr_shows_choices_only():
    assert repr(config(linger_ms=7, client_id="me")) == (
        "ProducerConfig(bootstrap_servers=('broker:9092',), client_id='me', linger_ms=7)"
    )


def test_secrets_show_neither_in_errors_nor_in_reprs():
    secret = "hunter2-" + str(random.random())
    for row in OPTIONS.values():
        if row.kind is not Kind.PASSWORD:
            continue
        assert secret not in row.shown(secret)
        for value in (secret, [secret]):
            with pytest.raises(ConfigError) as caught:
                config(**{row.name: value})
            assert secret not in str(caught.value) + repr(caught.value)
    assert {"sasl_password", "sasl_jaas_config", "ssl_keystore_key"} <= {
        row.name for row in OPTIONS.values() if row.secret
    }


def test_a_config_pickles_and_compares_by_value():
    original = config(client_id="me", acks=1)
    copied = pickle.loads(pickle.dumps(original))
    assert copied == original
    assert hash(copied) == hash(original)
    assert copied.explicitly_set == {"bootstrap_servers", "client_id", "acks"}
    assert copied != config(client_id="me", acks=0)


def test_a_config_with_a_secret_is_copied_with_what_has_it():
    original = config(
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="me",
        sasl_password="hunter2",
    )
    assert copy.copy(original) is original
    assert copy.deepcopy({"kafka": original})["kafka"] is original
    with pytest.raises(TypeError, match="is not pickled"):
        pickle.dumps(original)


def test_replace_keeps_choices_and_lets_rules_work_again():
    original = config(client_id="me", reconnect_backoff_ms=70)
    changed = original.replace(linger_ms=200_000)
    assert (changed.client_id, changed.reconnect_backoff_max_ms) == ("me", 70)
    assert changed.delivery_timeout_ms == 230_000
    assert changed.explicitly_set == original.explicitly_set | {"linger_ms"}
    with pytest.raises(ConfigError, match="linger_ms"):
        original.replace(linger_ms=-1)


def test_replace_of_a_subclass_with_another_constructor_keeps_its_attributes():
    class SiteConfig(ProducerConfig):
        def __init__(self, site):
            super().__init__(bootstrap_servers=f"{site}:9092", linger_ms=3)
            object.__setattr__(self, "site", site)

    changed = Producer(SiteConfig("east"), client_id="me").config
    assert (type(changed), changed.site) == (SiteConfig, "east")
    assert (changed.linger_ms, changed.client_id) == (3, "me")
    assert changed.explicitly_set == {"bootstrap_servers", "linger_ms", "client_id"}
    with pytest.raises(ConfigError, match="linger_ms"):
        changed.replace(linger_ms=-1)


def test_the_values_of_a_config_make_one_with_the_same_choices():
    original = config(client_id="me", acks=1)
    made = ProducerConfig(**dataclasses.asdict(original))
    assert made == original
    assert made.explicitly_set == original.explicitly_set
    changed = ProducerConfig(**dataclasses.asdict(original) | {"linger_ms": 7})
    assert changed.explicitly_set == original.explicitly_set | {"linger_ms"}


def test_replacing_a_field_of_the_dataclass_chooses_no_other():
    original = config(client_id="me")
    changed = dataclasses.replace(original, linger_ms=7)
    assert changed == original.replace(linger_ms=7)
    assert changed.explicitly_set == original.explicitly_set | {"linger_ms"}


def test_a_model_of_pydantic_takes_a_config_as_it_is():
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Settings", kafka=ProducerConfig)
    original = config(client_id="me")
    assert model(kafka=original).kafka is original
    with pytest.raises(pydantic.ValidationError, match="instance of ProducerConfig"):
        model(kafka={"bootstrap_servers": "a:1"})


def test_options_are_given_by_keyword_only():
    parameters = inspect.signature(ProducerConfig.__init__).parameters.values()
    assert {p.kind for p in parameters if p.name != "self"} == {inspect.Parameter.VAR_KEYWORD}

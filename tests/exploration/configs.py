"""The explored configurations: small ones in a test, large ones by `make explore`."""

from __future__ import annotations

from exploration.world import Config

_NET = frozenset({"close", "refuse", "after"})
_NO_CONNECTION = frozenset({"unreachable", "identity_failure", "metadata_failure"})

_TURN = frozenset({"turn"})
_EAGER = frozenset({"turn", "metadata", "dialed", "identity", "send", "resume", "act"})

_TX = frozenset({"lose", "loading"})
_LOST = frozenset({"lose"})
_TWO = ("init", "begin", "0", "commit", "begin", "1", "abort")
_OFFSETS = ("init", "begin", "offsets", "0", "commit")

_OFFSETS_ABORTED = ("init", "begin", "offsets", "abort", "begin", "0", "commit")

_AGAIN = ("init", "begin", "0", "commit", "begin", "commit")

_ABORTED = ("init", "begin", "0", "abort", "begin", "abort")
_UPGRADE = ("init", "begin", "0", "commit", "upgrade", "begin", "0", "abort")

_MOVES = frozenset({"relocate", "lose"})

_REFUSED = frozenset({"lose", "abortable"})
_UNKNOWN = frozenset({"lose", "unknown_producer"})
_ONE = ("init", "begin", "0", "commit")

_MORE = ("begin", "0", "commit")

SMALL_STATES = 4100
"""So many states of each small configuration are explored in a test."""

SMALL = (
    Config("one partition", (0, 0), 2, _NET | {"expire", "lose_producer"}),
    Config("single records", (0, 0, 0), 1, _NET | {"expire"}, direct=True),
    Config(
        "forgotten",
        (0, 0, 0),
        3,
        frozenset({"lose_producer", "pause", "refuse"}),
        direct=True,
        lossless=True,
    ),
    Config(
        "state lost in flight", (0, 0, 0), 2, frozenset({"lose_producer", "refuse"}), direct=True
    ),
    Config("single records in order", (0, 0), 2, _NET, direct=True, idempotent=False, ordered=True),
    Config("beginning", (0,), 1, _NO_CONNECTION | {"close"}, known=False, at_once=_TURN),
    Config("leader moves", (0, 0), 1, frozenset({"move"}), nodes=2, at_once=_TURN),
    Config(
        "without a leader",
        (0,),
        1,
        frozenset({"leaderless"}),
        nodes=2,
        lossless=True,
        at_once=_TURN,
    ),
    Config("dead leader", (0, 0), 1, frozenset({"die"}), nodes=2),
    Config("leader hints", (0, 0), 2, frozenset({"move", "refuse"}), nodes=2, hints=True),
    Config("large batches", (0, 0, 0), 2, frozenset({"large", "blame", "close"}), batch=2),
    Config("little memory", (0, 0, 0), 1, frozenset({"give_up", "close"}), batches=1, repeats=True),
    Config("topic created anew", (0, 0), 1, frozenset({"recreate"}), at_once=_TURN),
    Config(
        "created anew after a move",
        (0,),
        2,
        frozenset({"recreate", "move"}),
        nodes=2,
    ),
    Config(
        "created anew while requests are prepared",
        (0, 1),
        2,
        frozenset({"recreate", "refuse"}),
        nodes=2,
        slow=True,
        retries=1,
    ),
    Config(
        "created anew by name",
        (0, 0),
        3,
        frozenset({"recreate", "close", "after"}),
        by_name=True,
        at_once=_EAGER,
    ),
    # With a third fault the new topic can get all requests of a closed connection, and then those
    # that are repeated, which no client prevents.
    Config(
        "created anew by name with two in flight",
        (0, 0, 0),
        2,
        frozenset({"recreate", "close", "after"}),
        by_name=True,
        at_once=_EAGER,
    ),
    Config(
        "prepared in a thread",
        (0, 0),
        1,
        frozenset({"unprepared", "close", "expire"}),
        slow=True,
        at_once=frozenset({"metadata", "dialed"}),
    ),
    Config("two partitions", (0, 1), 2, _NET | {"omit"}, lossless=True),
    Config("three partitions", (0, 0, 1, 2), 1, frozenset({"close"}), window=1, together=2),
    Config("left out", (0, 1), 2, frozenset({"omit", "expire", "close"})),
    Config(
        "left out with few remembered",
        (0, 0, 0, 0),
        3,
        frozenset({"omit", "after"}),
        lossless=True,
        remembered=2,
        at_once=_EAGER,
    ),
    Config(
        "last numbers", (0, 0, 0), 2, frozenset({"refuse", "expire", "after"}), batch=2, worn=True
    ),
    Config("bulk", (0, 0, 0), 1, frozenset({"close", "expire"}), batch=2, batches=1, bulk=True),
    Config("bulk to two", (0, 1, 0, 1), 2, _NET | {"cut"}, batch=2, bulk=True),
    Config("purge", (0, 0, 0), 2, frozenset({"purge", "close"}), batch=2, batches=2),
    Config(
        "purge the later of two",
        (0, 0, 0, 0),
        2,
        frozenset({"purge", "close"}),
        batches=2,
        at_once=_EAGER,
    ),
    Config("closing", (0, 0), 2, frozenset({"finish", "cut", "close", "refuse"}), batches=1),
    Config("closing with linger", (0, 0), 1, frozenset({"finish", "cut"}), batch=2, linger=0.125),
    Config(
        "closing while requests are prepared",
        (0, 0),
        2,
        frozenset({"finish", "cut", "unprepared"}),
        slow=True,
        at_once=frozenset({"metadata", "dialed"}),
    ),
    Config("linger", (0, 0), 1, frozenset({"refuse", "close"}), batch=2, linger=0.125),
    Config("without idempotence", (0, 0), 2, _NET | {"expire"}, idempotent=False, ordered=True),
    Config(
        "few retries in doubt",
        (0, 0, 0),
        3,
        frozenset({"close"}),
        retries=1,
        at_once=_EAGER,
    ),
    Config(
        "few retries",
        (0,),
        3,
        frozenset({"close", "refuse", "unprepared"}),
        idempotent=False,
        ordered=True,
        slow=True,
        retries=1,
    ),
    Config(
        "vanishing topic",
        (0, 0),
        2,
        frozenset({"vanish", "refuse"}),
        idempotent=False,
        ordered=True,
        at_once=_TURN,
    ),
    Config("transactions V1", (0, 1), 2, _TX, script=_TWO),
    Config("transactions V2", (0, 1), 2, _TX, script=_TWO, v2=True),
    Config("again V1", (0, 0), 0, frozenset(), script=("init", *_MORE, *_MORE)),
    Config("late V1", (0,), 1, _LOST, script=_AGAIN),
    Config("late V2", (0,), 1, _LOST, script=_AGAIN, v2=True),
    Config("late twice V1", (0,), 2, _LOST, script=_ABORTED, at_once=_EAGER),
    Config("upgrade", (0,), 1, _LOST, script=_UPGRADE, renews=False),
    Config("in doubt V1", (0,), 1, frozenset({"doubt"}), script=("init", "begin", "0", "abort")),
    Config("offsets in doubt V1", (0,), 1, frozenset({"doubt"}), script=_OFFSETS_ABORTED),
    Config("in doubt V2", (0,), 1, frozenset({"doubt"}), script=_AGAIN, v2=True),
    Config("refused in doubt V1", (0,), 2, _REFUSED, script=_ONE),
    Config("refused in doubt V2", (0,), 2, _REFUSED, script=_ONE, v2=True),
    Config("unknown producer V1", (0,), 2, _UNKNOWN, script=_AGAIN),
    Config("unknown producer V2", (0,), 2, _UNKNOWN, script=_AGAIN, v2=True),
    Config("offsets V1", (0,), 1, _TX, script=_OFFSETS),
    Config("offsets V2", (0,), 2, _TX, script=_OFFSETS, v2=True),
    Config("failures V1", (0, 1), 1, _NET | {"expire"}, script=_TWO),
    Config("failures V2", (0, 1), 1, _NET | {"expire"}, script=_TWO, v2=True),
    Config("closing V1", (0, 1), 2, frozenset({"finish", "cut"}), script=_TWO),
    Config("closing V2", (0, 1), 2, frozenset({"finish", "cut", "lose"}), script=_TWO, v2=True),
    Config("coordinator moves V1", (0,), 1, _MOVES, nodes=2, script=_AGAIN),
    Config("coordinator moves V2", (0,), 1, _MOVES, nodes=2, script=_AGAIN, v2=True),
    Config("zombie V1", (0, 1), 1, frozenset({"fence", "lose"}), script=_TWO),
    Config("zombie V2", (0, 1), 2, frozenset({"fence", "lose"}), script=_TWO, v2=True),
)

LARGE = tuple(
    config._replace(
        name=f"{config.name}, more",
        sends=(*config.sends, 0),
        script=(*config.script, *_MORE) if config.script else (),
        faults=config.faults + 1,
        at_once=frozenset(),
    )
    for config in SMALL
)

"""A producer in a Starlette application, or one of any framework built on it, such as FastAPI.

    lifespan.py      one producer per process, from the application's start to its end
    answers.py       the response when Kafka cannot take a record: 503 and Retry-After
    background.py    records sent after the response
    live.py          a page that shows what the producer is doing, and its feed
    live_stats.py    what the page shows
    recording.py     the history that it shows
    query_token.py   the token of a request, kept out of logs

Needs the extra `aioproducer[starlette]` or `aioproducer[fastapi]`; nothing else imports this
package.
"""

from aioproducer._checks.extras import required
from aioproducer.refusal import Refusal

with required(__name__, "starlette"):
    from aioproducer.starlette.answers import answer_kafka_errors
    from aioproducer.starlette.background import publish_quietly
    from aioproducer.starlette.lifespan import ProducerLifespan, producer_of
    from aioproducer.starlette.live import PROXY_HEADERS, LivePage
    from aioproducer.starlette.query_token import take_token

__all__ = [
    "PROXY_HEADERS",
    "LivePage",
    "ProducerLifespan",
    "Refusal",
    "answer_kafka_errors",
    "producer_of",
    "publish_quietly",
    "take_token",
]

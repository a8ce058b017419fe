"""Actions of the sender for the error codes of a Produce response."""

from __future__ import annotations

import pytest

from aioproducer.core.sending.produce_rules import ProduceAction, action_for
from aioproducer.errors import error_for_code

LISTED = {0, 10, 18, 32, 46, 87}
LISTED_WITH_SEQUENCES = LISTED | {31, 35, 45, 49, 53, 59, 90}


@pytest.mark.parametrize(
    ("code", "plain", "idempotent"),
    [
        (0, ProduceAction.SUCCEED, ProduceAction.SUCCEED),
        (46, ProduceAction.SUCCEED, ProduceAction.SUCCEED),
        (10, ProduceAction.SPLIT, ProduceAction.SPLIT),
        (6, ProduceAction.RETRY, ProduceAction.RETRY),
        (29, ProduceAction.FAIL, ProduceAction.FAIL),
        (45, ProduceAction.FAIL, ProduceAction.OUT_OF_ORDER),
        (49, ProduceAction.FAIL, ProduceAction.NEW_ID),
        (90, ProduceAction.FAIL, ProduceAction.FATAL),
    ],
)
def test_the_action_depends_on_the_code_and_on_idempotence(
    code: int, plain: ProduceAction, idempotent: ProduceAction
) -> None:
    assert action_for(code, idempotent=False) is plain
    assert action_for(code, idempotent=True) is idempotent


@pytest.mark.parametrize(("idempotent", "listed"), [(False, LISTED), (True, LISTED_WITH_SEQUENCES)])
def test_other_codes_are_retried_if_their_error_is_retriable(
    idempotent: bool, listed: set[int]
) -> None:
    for code in {*range(-1, 140)} - listed:
        retries = error_for_code(code).retriable
        expected = ProduceAction.RETRY if retries else ProduceAction.FAIL
        assert action_for(code, idempotent=idempotent) is expected

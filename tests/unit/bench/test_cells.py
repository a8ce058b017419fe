"""The matrix: cells have names, words choose them."""

from __future__ import annotations

import pytest

from bench.cells import CLIENTS, ESSENTIAL, FULL, TURN_RECORDS, Cell, select

CELLS = [cell for cells in FULL.values() for cell in cells]


def test_no_two_cells_share_a_key() -> None:
    distinct = set(CELLS)
    assert len({cell.key for cell in distinct}) == len(distinct)


def test_every_cell_sends_something_in_a_way_its_client_has() -> None:
    special = {"latency", "fill", "active"}
    assert all(cell.records > 0 for cell in CELLS)
    assert all(cell.mode in {*CLIENTS[cell.client].modes, *special} for cell in CELLS)


def test_latencies_are_measured_in_several_whole_turns() -> None:
    cells = [cell for cell in CELLS if cell.mode == "latency"]
    assert all(cell.turns > 1 and cell.records == cell.turns * TURN_RECORDS for cell in cells)
    assert {cell.client for cell in cells} >= {"aioproducer", "confluent-aio"}


def test_the_matrix_crosses_everything() -> None:
    ours = {cell for cell in FULL["matrix"] if (cell.client, cell.mode) == ("aioproducer", "each")}
    assert len(ours) == 2 * 3 * 3 * 3 * 2


def test_words_of_one_kind_add_up_and_of_different_kinds_narrow_down() -> None:
    assert select(ESSENTIAL, ["latency", "fill"]) == ESSENTIAL["latency"] + ESSENTIAL["fill"]
    assert select(ESSENTIAL, ["cost", "latency", "aiokafka", "tasks"]) == [
        Cell("aiokafka", "tasks")
    ]


def test_a_section_outside_the_essential_ones_is_there_when_named() -> None:
    assert select(ESSENTIAL, ["own"]) == FULL["own"]


def test_no_words_choose_each_essential_cell_once() -> None:
    chosen = select(ESSENTIAL, [])
    assert len(chosen) == len(set(chosen))
    assert set(chosen) == {cell for cells in ESSENTIAL.values() for cell in cells}


def test_a_word_that_names_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown: aiokafak"):
        select(ESSENTIAL, ["aiokafak"])

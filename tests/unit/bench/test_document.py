"""Several measurements write to one document without losing each other's part."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

from bench.document import write_faults, write_soak, write_spark, write_transactions

PARTS = {
    write_faults: "# Faults\n",
    write_transactions: "# Transactions\n",
    write_spark: "# Spark\n",
    write_soak: "# Soak\n",
}


def test_each_part_survives_the_others_in_any_order(tmp_path: Path) -> None:
    documents = set()
    for number, order in enumerate(permutations(PARTS)):
        path = tmp_path / f"{number}.md"
        for write in order:
            write(PARTS[write], path)
        documents.add(path.read_text())
    (document,) = documents
    places = [document.index(text) for text in PARTS.values()]
    assert places == sorted(places)


def test_writing_again_replaces_only_ones_own_part(tmp_path: Path) -> None:
    path = tmp_path / "document.md"
    for word in ("old", "new"):
        for write, text in PARTS.items():
            write(text + word, path)
    assert "old" not in path.read_text()
    assert path.read_text().count("new") == len(PARTS)

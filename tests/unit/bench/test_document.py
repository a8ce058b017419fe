"""Two measurements write to one document without losing each other's part."""

from __future__ import annotations

from pathlib import Path

from bench.document import write_faults, write_soak


def test_each_part_survives_the_other_in_any_order(tmp_path: Path) -> None:
    one, other = tmp_path / "one.md", tmp_path / "other.md"
    write_faults("# Faults\n", one)
    write_soak("## Soak\n", one)
    write_soak("## Soak\n", other)
    write_faults("# Faults\n", other)
    assert one.read_text() == other.read_text()
    assert one.read_text().index("# Faults") < one.read_text().index("## Soak")


def test_writing_again_replaces_only_ones_own_part(tmp_path: Path) -> None:
    path = tmp_path / "document.md"
    for text in ("old", "new"):
        write_faults(f"# Faults {text}\n", path)
        write_soak(f"## Soak {text}\n", path)
    assert "old" not in path.read_text()
    assert path.read_text().count("new") == 2

"""The site is complete and its links lead somewhere, before it is built: `make docs` builds it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.children import ROOT
from support.pages import DOCS
from tools.site import errors as catalogue
from tools.site import examples, options
from tools.site.__main__ import assemble
from tools.site.api import MODULES, Module
from tools.site.links import broken_links
from tools.site.markdown import BrokenLinkError, page_text
from tools.site.pages import every_page

import aioproducer
from aioproducer import errors
from aioproducer.config import OPTIONS
from aioproducer.config.names import VERDICTS
from aioproducer.errors.advice import ADVICE


@pytest.fixture(scope="module")
def assembled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GITHUB_REPOSITORY", raising=False)
        assemble(folder)
    return folder / "pages"


def test_every_guide_is_in_the_navigation(assembled: Path) -> None:
    targets = [page.target for page in every_page()]
    assert len(targets) == len(set(targets))
    for guide in DOCS.glob("*.md"):
        assert guide.name in targets, guide.name
        assert (assembled / guide.name).exists()


def test_every_link_of_the_pages_leads_to_a_page_and_its_heading(assembled: Path) -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in assembled.rglob("*.md")}
    checked = 0
    for path, text in pages.items():
        prose = re.sub(r"^```.*?^```$|`[^`\n]+`", "", text, flags=re.MULTILINE | re.DOTALL)
        for address in re.findall(r"\]\(([^()\s]+)\)", prose):
            if re.match(r"[a-z]+:", address):
                continue
            name, _, anchor = address.partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.exists(), f"{path.name}: {address}"
            if anchor:
                assert anchor in anchors(pages[target]), f"{path.name}: {address}"
            checked += 1
    assert checked > 30


def anchors(text: str) -> set[str]:
    """The anchors of a page: its headings', and those it sets itself."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    slugs = {
        re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", each).strip().lower()) for each in headings
    }
    own = re.findall(r'<a id="([^"]+)"', text) + re.findall(r"\{ #([\w-]+) \}", text)
    return slugs | set(own)


def entries(text: str) -> dict[str, str]:
    """The text of each heading of the third level, by its anchor."""
    parts = re.split(r"^###? ", text, flags=re.MULTILINE)[1:]
    found = (re.match(r"`\w+` \{ #(\w+) \}\n\n(.*)", part, re.DOTALL) for part in parts)
    return {match[1]: match[2] for match in found if match}


def test_the_options_page_has_every_option_with_what_there_is_to_know() -> None:
    found = entries(options.page())
    assert set(found) == set(OPTIONS)
    for option in OPTIONS.values():
        text = found[option.name]
        assert option.doc in text
        assert f"`{option.kafka_name}`" in text
        if not option.required and not isinstance(option.default, tuple):
            assert f"default `{option.default!r}`" in text
        assert option.constraint.text.replace("|", "&#124;") in text
        for name in options.accepted(option):
            assert f"`{name}`" in text
    assert found["linger_ms"].startswith("default `5` · ms · `linger.ms` in files")
    assert found["batch_size"].startswith("default `16384` · bytes · ")
    assert "Also accepted: " in found["linger_ms"]
    assert "`queue.buffering.max.ms`" in found["linger_ms"]


def test_the_options_page_has_every_name_of_other_clients() -> None:
    text = options.page()
    for name in VERDICTS:
        assert f"`{name}`" in text
    assert "| `queue.buffering.max.kbytes` | `buffer_memory`, converted |" in text
    assert "| `compression.level` | `compression_&lt;codec&gt;_level`, converted |" in text
    assert "| `dr_cb`, `dr_msg_cb`, `on_delivery` | it would never be called | await the" in text
    assert "`session.timeout.ms`" in text


def test_the_error_catalogue_has_every_error_with_all_three_answers() -> None:
    found = entries(catalogue.page())
    families = {"KafkaError", "BrokerError", "RetriableBrokerError", "InvalidMetadataError"}
    public = {
        name.lower()
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.KafkaError) and name not in families
    }
    assert public - {"unknownbrokererror"} <= set(found)
    answers = re.compile(
        r"\S.*\n\n- Written: \S.*\n- What to do: (?!None)\S.*\n\n(## .*)?", re.DOTALL
    )
    for name, text in found.items():
        assert answers.match(text), name
    assert set(catalogue.CLIENT) == {error.__name__ for error in catalogue.client_errors()}


def test_pages_name_and_link_their_sources_where_the_repository_has_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://code.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "shop/aioproducer")
    assemble(tmp_path / "docs")
    page = (tmp_path / "docs/pages/web.md").read_text(encoding="utf-8")
    repository = "https://code.example/shop/aioproducer"
    assert f"[`aioproducer/docs/web.md`]({repository}/edit/main/aioproducer/docs/web.md)" in page
    configuration = (tmp_path / "docs/zensical.toml").read_text(encoding="utf-8")
    assert f'repo_url = "{repository}"' in configuration
    assert f'site_name = "aioproducer {aioproducer.__version__}"' in configuration
    kips = (tmp_path / "docs/pages/reference/options.md").read_text(encoding="utf-8")
    assert f"{repository}/edit/main/aioproducer/config/table.py" in kips


def test_pages_name_their_sources_without_an_address(assembled: Path) -> None:
    text = (assembled / "web.md").read_text(encoding="utf-8")
    assert text.endswith("Source of this page: `aioproducer/docs/web.md`\n{ .source }\n")


@pytest.mark.parametrize("module", [each for each in MODULES if each.whole])
def test_drop_ins_are_described_by_code_and_a_table_of_differences(module: Module) -> None:
    text = module.page()
    assert re.search(r"^```python\nfrom aioproducer\.compat\.\w+ import ", text, re.MULTILINE)
    client = {"compat": "aiokafka", "compat-kafka": "kafka-python"}.get(module.file)
    header, rows = text.split(f"| {client or 'confluent-kafka'} | here |\n|---|---|\n")
    assert header.endswith("What differs on purpose:\n\n")
    table = rows.split("\n\n", 1)[0].splitlines()
    assert len(table) > 10
    assert all(re.fullmatch(r"\| [^|]+ \| [^|]+ \|", row) for row in table)


def test_reference_pages_begin_with_the_names_that_users_call() -> None:
    first = {each.file: re.findall(r"^## (\w+)", each.page(), re.MULTILINE)[0] for each in MODULES}
    assert first["testing"] == "MockProducer"
    assert first["blocking"] == first["producer"] == "Producer"
    assert first["fastapi"] == first["starlette"] == "ProducerLifespan"
    assert first["loader"] == "Loader"


def test_a_link_to_nothing_is_refused_and_one_to_a_source_becomes_its_text() -> None:
    def translated(text: str) -> str:
        there = {"aioproducer/client/producer.py", "README.md", "bench/a.png"}
        return page_text(
            text,
            "aioproducer/docs/x.md",
            {"README.md": "index.md", "aioproducer/docs/x.md": "x.md"},
            there.__contains__,
            pictures,
        )

    pictures: set[str] = set()
    assert translated("[home](../../README.md#top)") == "[home](index.md#top)"
    assert translated("[`send`](../client/producer.py)") == "`send`"
    assert translated("`[a](b)`") == "`[a](b)`"
    assert translated("![plot](../../bench/a.png)") == "![plot](bench/a.png)"
    assert translated('<img alt="a" src="../../bench/a.png">') == '<img alt="a" src="bench/a.png">'
    assert pictures == {"bench/a.png"}
    assert translated("text:\n- one\n- two") == "text:\n\n- one\n- two"
    assert translated("```text\nx:\n- one\n```") == "```text\nx:\n- one\n```"
    with pytest.raises(BrokenLinkError, match=r"nothing\.md"):
        translated("[a](nothing.md)")


def test_every_example_is_on_a_page_and_its_name_is_a_link(assembled: Path) -> None:
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/**/*.py")}
    assert files - set(examples.FILES) == {"examples/gateway/__main__.py"}
    text = (assembled / "examples.md").read_text(encoding="utf-8")
    for file in examples.FILES:
        assert (ROOT / file).read_text(encoding="utf-8") in text
    web = (assembled / "web.md").read_text(encoding="utf-8")
    assert "[`examples/outbox.py`](examples.md#outbox)" in web
    assert "[`examples/gateway`](examples.md#gateway-app)" in web
    assert "[`examples/outbox.py`](examples.md#outbox) {" not in text


def test_dead_links_and_anchors_of_the_built_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="b/#here">1</a> <a href="b/#gone">2</a> <a href="c/">3</a> <a href="#self">4</a>'
        '<h1 id="self"></h1><a href="https://example.com/x">5</a><img src="b/p.png">'
    )
    (tmp_path / "b" / "index.html").write_text('<h2 id="here"></h2><a href="..">up</a>')
    assert broken_links(tmp_path) == [
        "index.html: b/#gone (no such anchor)",
        "index.html: c/ (no such file)",
        "index.html: b/p.png (no such file)",
    ]


def test_the_page_of_errors_has_the_whole_table_of_what_to_do() -> None:
    text = catalogue.page()
    for code, advice in ADVICE.items():
        assert f'| <a id="{code}"></a>`{code}` | {advice} |' in text

"""Docstrings, comments, messages and pages use standard words: `RETIRED` says which ones do not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "aioproducer"

# A changelog keeps the words of its time, and this file quotes retired words.
SKIPPED = ("CHANGELOG.md", "aioproducer/CHANGELOG.md", "tests/test_prose.py")

_PLACES = "proxy|proxies|load|balancer|NAT|firewall|gateway"
_PEOPLE = ("users", "people", "operators", "engineers", "readers", "maintainers", "anyone")

# A pattern of a retired word, and what to write instead.
RETIRED = tuple(
    (re.compile(pattern, re.IGNORECASE), instead)
    for pattern, instead in (
        (r"\bwho(?:so)?ever\b|\bwhom\b", "the caller, the task, any process"),
        ("".join(rf"(?<!{each} )" for each in _PEOPLE) + r"\bwho\b", "name the actor"),
        (r"\b(?:no|some|every|any)body\b", "no caller, another process, all tasks"),
        (r"\bas\s+ever\b", "as before, unchanged"),
        (r"\bin\s+vain\b", "without effect"),
        (r"\bof\s+(?:its|their|his)\s+own\b", "its own ..., separate"),
        (r"\bso\s+much\s+for\b", "(delete it)"),
        (
            r"(?<!fall )(?<!falls )(?<!fell )(?<!fallen )(?<!lag )(?<!lags )(?<!left )(?<!leave )"
            rf"\bbehind\b(?!\s+(?:an?|the)\s+(?:\w+\s+)?(?:{_PLACES}))",
            "after, following",
        ),
        (r"\b(?:stands?|stood)\b(?!-|\s+in\s+for|\s+for)", "is, is at, is stored"),
        (r"\b(?:told|tells?|telling)\b", "is notified, receives; report, distinguish, show"),
        (r"\bfates?\b", "outcome, result"),
        (r"\blanes?\b", "fast path, slow path"),
        (r"\bkin\b", "similar"),
        (r"\btwins?\b", "pure-Python fallback"),
        (r"\bfarewells?\b", "close grace period, last message"),
        (r"\b(?:im)?patience\b|\b(?:im)?patient\b", "timeout"),
        (r"\bhurr(?:y|ies|ied)\b", "send at once, shorten"),
        (r"\blone\b(?!\s+surrogate)", "single"),
        (r"\bcrowds?\b", "adaptive linger"),
        (r"\bmend(?:s|ed|ing)?\b", "recover from, repair"),
        (r"\bforg(?:ets?|ot|otten|etting)\b", "drop, remove, expire"),
        (r"\bknow(?:s|ing)\b|\bknew\b|\b(?:do|does|did|must)\s+not\s+know\b", "has, supports"),
        (
            r"\blook(?:s|ed|ing)?\s+(?:at|for|through|around|into|whether|again|after)\b",
            "read, check, search, inspect",
        ),
        (r"\blies\b|\blain\b|\blie\s+(?:in|on|at|below|before|within|there|here|beside)\b", "is"),
        (
            r"\bliv(?:es?|ed|ing)\s+(?:in|on|as|at|here|there|until|beside|with|for)\b",
            "is in, exists, runs",
        ),
        (r"\b(?:dies|died|die)\s+of\b", "fails with"),
        (r"\bdoubtful\b", "unresolved, questionable"),
        (r"\blen(?:t|ds?|ding)\b", "hand over"),
        (r"\bh(?:a|u)ngs?[\s-]ups?\b", "close, disconnect"),
        (r"\bin\s+(?:its|our|their|the\s+other)\s+(?:own\s+)?words\b", "as text"),
        (r"\brooms\b|\b(?:this|every|the\s+\w+)\s+room\b", "package, layer"),
        (r"\busual\s+(?:answer|outcome)\b", "plain acknowledgement"),
        (r"\bspeaks?\b|\bspoken?\b", "uses, supports"),
    )
)

_RIDDLE = re.compile(r"(?:What|Who|Whose|Whoever|How|Where|Which|When|Why|Whether)\b")
_IMPERATIVE = "an imperative (`Return ...`) or a noun phrase as the first line"
_CODE = re.compile(r"``.*?``|`[^`]*`", re.DOTALL)
_FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"(?:^|  )#[:!]? (.*)$")
_CYTHON_TEXT = re.compile(r'"""(.*?)"""', re.DOTALL)


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n") or " "


def findings(text: str, line: int = 1) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the word and its replacement for each retired word of a text."""
    text = _CODE.sub(_blank, text)
    for pattern, instead in RETIRED:
        for match in pattern.finditer(text):
            yield line + text.count("\n", 0, match.start()), match[0], instead


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each comment; lines that follow each other are one."""
    begun, block = 0, list[str]()
    for number, line in enumerate([*source.split("\n"), ""], 1):
        if found := _COMMENT.search(line):
            begun = begun or number
            block.append(found[1])
        elif block:
            yield begun, "\n".join(block)
            begun, block = 0, []


def _kinds(tree: ast.Module) -> Iterator[tuple[ast.Constant, str]]:
    """Yield each docstring with `module`, `class`, `property` or `function`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        match node.body:
            case [ast.Expr(value=ast.Constant(value=str()) as text), *_]:
                kind = type(node).__name__.removeprefix("Async").removesuffix("Def").lower()
                decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
                yield text, "property" if any("property" in d for d in decorators) else kind


def python_findings(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield findings in strings, comments and names of tests, and first lines that are riddles."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str() as text) if " " in text:
                yield from findings(text, node.lineno)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test_"):
                    yield from findings(name.replace("_", " "), node.lineno)
    for line, text in comments(source):
        yield from findings(text, line)
    for node, kind in _kinds(tree):
        found = _RIDDLE.match(str(node.value))
        if found and not (kind == "property" and found[0] == "Whether"):
            yield node.lineno, found[0], _IMPERATIVE


def cython_findings(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield what `findings` gives for docstrings and comments of a Cython file."""
    for match in _CYTHON_TEXT.finditer(source):
        yield from findings(match[1], 1 + source.count("\n", 0, match.start()))
    for line, text in comments(source):
        yield from findings(text, line)


CHECKS = {
    ".py": python_findings,
    ".pyi": python_findings,
    ".pyx": cython_findings,
    ".pxd": cython_findings,
    ".pxi": cython_findings,
    ".md": lambda source: findings(_FENCED.sub(_blank, source)),
}


def _files() -> Iterator[tuple[str, Path]]:
    pages = [path for folder in ("", "bench", "tests") for path in (ROOT / folder).glob("*.md")]
    folders = ("bench", "examples", "tests", ".ci")
    programs = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    for path in sorted([*pages, ROOT / "setup.py", *programs, *PACKAGE.rglob("*.*")]):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in CHECKS and name not in SKIPPED:
            yield name, path


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="not a checkout of the repository")
def test_no_retired_word_is_in_a_clean_folder() -> None:
    found = [
        f"{name}:{line}: {word!r}: write {instead}"
        for name, path in _files()
        for line, word, instead in sorted(CHECKS[path.suffix](path.read_text(encoding="utf-8")))
    ]
    assert not found, "\n".join(["retired words (see `RETIRED`):", *found])


@pytest.mark.parametrize(
    "text",
    [
        "the task that whoever awaits",
        "the row behind it",
        "a record stands at offset 3",
        "the cluster does not know the topic",
        "The broker is told\nof it",
        "it tries in\nvain",
        "the batch it lent",
    ],
)
def test_retired_words_are_found(text: str) -> None:
    assert list(findings(text))


@pytest.mark.parametrize(
    "text",
    [
        "needed behind a proxy, or behind the load balancer",
        "a follower that falls behind leaves the ISR",
        "it stands in for a broker; -1 stands for the default; a stand-in",
        "names are looked up; a text that looks like a URL",
        "a lone surrogate",
        "the live page, long-lived connections, live metrics",
        "users who start it",
        "space left; room for one more record",
        "the code `hung-up`, the option `who`",
    ],
)
def test_plain_english_is_not_retired(text: str) -> None:
    assert not list(findings(text))


def test_first_lines_that_are_no_sentence_are_found() -> None:
    source = 'def f() -> int:\n    """How many there are."""\n\nclass C:\n    """What it is."""\n'
    assert [(line, word) for line, word, _ in python_findings(source)] == [(2, "How"), (5, "What")]


def test_retired_words_in_names_of_tests_are_found() -> None:
    source = "async def test_a_lone_record_waits(): ...\n\ndef lone(): ...\n"
    assert [(line, word) for line, word, _ in python_findings(source)] == [(1, "lone")]

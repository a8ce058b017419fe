"""The pages of the site, in the order of its navigation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tools.site import api, errors, examples, options

ROOT = Path(__file__).parents[3]


class Page(NamedTuple):
    """One page: its title, its place on the site, and the file or the function it comes from.

    `files` are those that such a function reads.
    """

    title: str
    target: str
    source: str | Callable[[], str]
    files: tuple[str, ...] = ()

    @property
    def home(self) -> str:
        """Base of relative links: its file; a page made by a function counts as a guide."""
        return self.source if isinstance(self.source, str) else f"aioproducer/docs/{self.target}"

    @property
    def made_of(self) -> tuple[str, ...]:
        """The files to edit for another text."""
        return (self.source,) if isinstance(self.source, str) else self.files

    def text(self) -> str:
        """The page in Markdown, links as in its source."""
        if isinstance(self.source, str):
            return (ROOT / self.source).read_text(encoding="utf-8")
        return self.source()


def _guide(title: str, name: str) -> Page:
    return Page(title, f"{name}.md", f"aioproducer/docs/{name}.md")


SECTIONS: dict[str, list[Page]] = {
    "": [
        Page("Overview", "index.md", "README.md"),
        _guide("Tutorial", "tutorial"),
        _guide("Installing", "install"),
        _guide("Cookbook", "cookbook"),
        Page("Examples", examples.TARGET, examples.page, examples.FILES),
    ],
    "Guides": [
        _guide("Sending records", "sending"),
        _guide("Transactions", "transactions"),
        _guide("Loading files", "loads"),
        _guide("Serializers", "serializers"),
        _guide("Security", "security"),
        _guide("Permissions", "permissions"),
        _guide("Managed Kafka", "managed"),
        _guide("Web applications", "web"),
        _guide("Spark", "spark"),
        _guide("Loading with Spark", "spark_loading"),
        _guide("Sizing Spark jobs", "spark_sizing"),
        _guide("Kafka sinks compared", "spark_comparison"),
        _guide("Testing", "testing"),
        _guide("Monitoring", "monitoring"),
        Page("Dashboard and alerts", "observability.md", "examples/observability/README.md"),
        _guide("Logging", "logging"),
        _guide("Deployment", "deployment"),
        _guide("Troubleshooting", "troubleshooting"),
        _guide("Command line", "cli"),
        _guide("Migration", "migration"),
    ],
    "Reference": [
        _guide("Delivery guarantees", "guarantees"),
        _guide("Comparison", "comparison"),
        Page("Options", "reference/options.md", options.page, options.FILES),
        Page("Errors", "reference/errors.md", errors.page, errors.FILES),
        *(
            Page(
                f"API: {module.title}", f"reference/api/{module.file}.md", module.page, module.files
            )
            for module in api.MODULES
        ),
        _guide("Questions", "faq"),
        _guide("Versions", "versions"),
        Page("KIPs", "reference/kips.md", "aioproducer/KIPS.md"),
        Page("Changes", "reference/changes.md", "CHANGELOG.md"),
    ],
    "Background": [
        _guide("Performance", "performance"),
        Page("Measurements", "measurements/results.md", "bench/RESULTS.md"),
        Page("Spark measurements", "measurements/spark.md", "bench/SPARK.md"),
        Page("Method", "measurements/method.md", "bench/README.md"),
        Page("Notes", "measurements/notes.md", "bench/NOTES.md"),
        _guide("Reliability", "reliability"),
        Page("Reliability measurements", "measurements/reliability.md", "bench/RELIABILITY.md"),
        Page("Architecture", "architecture.md", "aioproducer/ARCHITECTURE.md"),
        Page(
            "Exactly once from Spark", "spark-exactly-once.md", "aioproducer/spark/EXACTLY_ONCE.md"
        ),
        Page("Contributing", "contributing.md", "CONTRIBUTING.md"),
        Page("Security policy", "security-policy.md", "SECURITY.md"),
    ],
}
"""The pages by section; the section without a name is the top."""


def every_page() -> Iterator[Page]:
    """All pages, in order."""
    for pages in SECTIONS.values():
        yield from pages

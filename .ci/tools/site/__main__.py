"""Puts the site together and builds it: any warning and any dead link fails.

    python -m tools.site            # into build/docs/site
    python -m tools.site serve      # and shows it on a local port, built anew when sources change

Owns: the steps, and the generator's configuration. Must not know: the pages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tools.site.links import broken_links
from tools.site.markdown import page_text
from tools.site.pages import ROOT, SECTIONS, every_page

BUILD = ROOT / "build" / "docs"
SITE = BUILD / "site"

_CONFIGURATION = """\
[project]
site_name = "aioproducer"
site_description = "The asyncio-native producer client for Apache Kafka"
docs_dir = "pages"
site_dir = "site"
extra_css = ["site.css"]
strict = true
nav = [
{nav}
]

[project.validation]
invalid_links = true
invalid_link_anchors = true

[project.theme]
variant = "modern"
font = false
features = [
    "content.code.copy", "navigation.sections", "navigation.top", "navigation.footer",
    "search.highlight", "toc.follow",
]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Dark"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Light"

[project.markdown_extensions.toc]
permalink = true
[project.markdown_extensions.tables]
[project.markdown_extensions.attr_list]
[project.markdown_extensions.md_in_html]
[project.markdown_extensions.pymdownx.highlight]
[project.markdown_extensions.pymdownx.superfences]

[project.plugins.mkdocstrings.handlers.python]
paths = ["{root}"]

[project.plugins.mkdocstrings.handlers.python.options]
docstring_style = "google"
heading_level = 3
show_root_heading = false
show_root_toc_entry = false
show_source = false
show_bases = false
separate_signature = true
show_signature_annotations = true
members_order = "source"
filters = ["!^_"]
inherited_members = ["aioproducer"]
"""

_STYLE = """\
/* Names in a table's first column stay in one piece where there is room. */
.md-typeset table:has(td > a[id]) td:first-child { min-width: 13rem; }
"""


def assemble(folder: Path) -> None:
    """Write pages, pictures and configuration into a folder of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    targets = {page.home: page.target for page in every_page()}
    pictures: set[str] = set()
    for page in every_page():
        file = folder / "pages" / page.target
        file.parent.mkdir(parents=True, exist_ok=True)
        text = page_text(page.text(), page.home, targets, _in_repository, pictures)
        file.write_text(text, encoding="utf-8")
    for picture in pictures:
        place = folder / "pages" / picture
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / picture, place)
    (folder / "pages" / "site.css").write_text(_STYLE, encoding="utf-8")
    configuration = _CONFIGURATION.format(root=ROOT, nav=_navigation())
    (folder / "zensical.toml").write_text(configuration, encoding="utf-8")


def _in_repository(name: str) -> bool:
    return (ROOT / name).exists()


def _navigation() -> str:
    lines = []
    for title, pages in SECTIONS.items():
        entries = [f'{{ "{page.title}" = "{page.target}" }}' for page in pages]
        if title:
            lines.append(f'    {{ "{title}" = [{", ".join(entries)}] }},')
        else:
            lines += [f"    {entry}," for entry in entries]
    return "\n".join(lines)


def generator(*arguments: str) -> int:
    """Run the generator on what was assembled; its exit code, 1 if it complains and goes on."""
    command = [sys.executable, "-m", "zensical", *arguments]
    with subprocess.Popen(
        command, cwd=BUILD, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        complaints = 0
        for line in process.stdout or ():
            print(line, end="", flush=True)
            complaints += line.startswith("griffe:")  # docstrings that do not fit their functions
    return process.returncode or bool(complaints)


def main(arguments: list[str]) -> int:
    """Build, or serve."""
    assemble(BUILD)
    if arguments == ["serve"]:
        return generator("serve")
    shutil.rmtree(SITE, ignore_errors=True)
    code = generator("build", "--clean", "--strict")
    if code:
        return code
    broken = broken_links(SITE)
    print(
        "\n".join(broken) or f"{len(list(SITE.rglob('*.html')))} pages, every link leads somewhere"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

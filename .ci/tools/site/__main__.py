"""Puts the site together and builds it: any warning and any dead link fails.

python -m tools.site            # into build/docs/site
python -m tools.site serve      # and shows it on a local port, built anew when sources change
python -m tools.site publish F  # adds the built site to those of other versions in folder F
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from aioproducer import __version__
from tools.site import examples
from tools.site.links import broken_links
from tools.site.markdown import page_text
from tools.site.pages import ROOT, SECTIONS, Page, every_page
from tools.site.versions import publish

BUILD = ROOT / "build" / "docs"
SITE = BUILD / "site"

_CONFIGURATION = """\
[project]
site_name = "aioproducer {version}"
site_description = "The asyncio-native producer client for Apache Kafka"
docs_dir = "pages"
site_dir = "site"
extra_css = ["site.css"]
extra_javascript = ["site.js", "versions.js"]
strict = true
{repository}
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
media = "(prefers-color-scheme)"
toggle.icon = "lucide/sun-moon"
toggle.name = "Colors of the system; switch to light"

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Light; switch to dark"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Dark; switch to the system's colors"

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
docstring_section_style = "list"
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

_ASSETS = Path(__file__).parent / "assets"


def assemble(folder: Path) -> None:
    """Write pages, pictures and configuration into a separate folder."""
    shutil.rmtree(folder, ignore_errors=True)
    targets = {page.home: page.target for page in every_page()}
    pictures: set[str] = set()
    for page in every_page():
        file = folder / "pages" / page.target
        file.parent.mkdir(parents=True, exist_ok=True)
        text = page_text(
            page.text(),
            page.home,
            targets,
            _in_repository,
            pictures,
            repository(),
            examples.links(),
        )
        file.write_text(text + source_line(page, repository()), encoding="utf-8")
    for picture in pictures:
        place = folder / "pages" / picture
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / picture, place)
    for asset in _ASSETS.iterdir():
        shutil.copy(asset, folder / "pages" / asset.name)
    address = repository()
    configuration = _CONFIGURATION.format(
        root=ROOT,
        nav=_navigation(),
        version=__version__,
        repository=f'repo_url = "{address}"' if address else "",
    )
    (folder / "zensical.toml").write_text(configuration, encoding="utf-8")


def repository() -> str | None:
    """Return the address of the repository, if the build runs in its continuous integration."""
    server, name = (os.environ.get(f"GITHUB_{each}") for each in ("SERVER_URL", "REPOSITORY"))
    return f"{server}/{name}" if server and name else None


def source_line(page: Page, address: str | None) -> str:
    """Return the last line of a page: the file to change, with a link if there is an address."""
    files = ", ".join(
        f"[`{file}`]({address}/edit/main/{file})" if address else f"`{file}`"
        for file in page.made_of
    )
    return f"\n\nSource of this page: {files}\n{{ .source }}\n"


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


def generator(folder: Path, *arguments: str) -> int:
    """Run the generator on what was assembled; its exit code, 1 if it complains and goes on."""
    command = [sys.executable, "-m", "zensical", *arguments]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        complaints = 0
        for line in process.stdout or ():
            print(line, end="", flush=True)
            complaints += line.startswith("griffe:")  # docstrings that do not fit their functions
    return process.returncode or bool(complaints)


def build(folder: Path) -> int:
    """Build the site into `folder/site`; return 0 if there is no warning and no broken link."""
    assemble(folder)
    site = folder / "site"
    if code := generator(folder, "build", "--clean", "--strict"):
        return code
    broken = broken_links(site)
    print(
        "\n".join(broken) or f"{len(list(site.rglob('*.html')))} pages, every link leads somewhere"
    )
    return 1 if broken else 0


def main(arguments: list[str]) -> int:
    """Build, serve or publish."""
    if arguments == ["serve"]:
        assemble(BUILD)
        return generator(BUILD, "serve")
    if arguments[:1] == ["publish"]:
        print("versions: " + ", ".join(publish(SITE, Path(arguments[1]), __version__)))
        return 0
    return build(BUILD)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

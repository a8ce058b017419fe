"""Makes pages of the repository's Markdown: links that lead to pages, lists as GitHub shows them.

Invariants: code, fenced or in backticks, stays as it is; a link to a file of the repository that is
neither a page nor a picture leads to the repository's address, or becomes its text without one; a
link to nothing is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

_CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_PICTURE = re.compile(r"(<img [^>]*?)src=\"(?!https?:)([^\"]+)\"")
_LIST_AFTER_TEXT = re.compile(
    r"^(?!\s*(?:[-*]|\d+\.) )(?!\s)(?!#|\|)(.+)\n(?=(?:[-*]|1\.) )", re.MULTILINE
)


class BrokenLinkError(Exception):
    """A page links to a file that does not exist."""


def page_text(
    text: str,
    source: str,
    targets: Mapping[str, str],
    exists: Callable[[str], bool],
    pictures: set[str],
    repository: str | None = None,
    programs: Mapping[str, str] | None = None,
) -> str:
    """Translate a page of the repository to one of the site; raise `BrokenLinkError`.

    `source` and `targets` are files of the repository, with the place of each page on the site.
    `pictures` collects the pictures that are shown. Links to other files lead to the address
    `repository`, or become text; names of `programs` in backticks become links.
    """

    programs = {} if programs is None or targets[source].startswith("examples.") else programs

    def linked(match: re.Match[str]) -> str:
        bang, label, address = match.groups()
        if re.match(r"[a-z]+:|#", address):
            return match[0]
        path, _, anchor = address.partition("#")
        file = os.path.normpath(PurePosixPath(source).parent / path)
        place = targets.get(file)
        if not (place or exists(file)):
            raise BrokenLinkError(f"{source}: {address}")
        if bang:
            pictures.add(file)
            place = file
        elif file in programs:
            return label  # a name in backticks
        elif place is None:
            return f"[{label}]({repository}/blob/main/{file})" if repository else label
        return f"{bang}[{label}]({relative(place)}{'#' * bool(anchor)}{anchor})"

    def shown(match: re.Match[str]) -> str:
        file = os.path.normpath(PurePosixPath(source).parent / match[2])
        pictures.add(file)
        return f'{match[1]}src="{relative(file)}"'

    def shown_code(code: str) -> str:
        program = programs.get(code.strip("`"))
        if program is None or code.startswith("```"):
            return code
        place, _, anchor = program.partition("#")
        return f"[{code}]({relative(place)}#{anchor})"

    def relative(place: str) -> str:
        return os.path.relpath(place, PurePosixPath(targets[source]).parent)

    parts = _CODE.split(text)
    # What is between two pieces of code may be part of a link whose label is code.
    joined, kept = [], []
    for number, part in enumerate(parts):
        if number % 2:
            kept.append(part)
            joined.append(f"\0{len(kept) - 1}\0")
        else:
            joined.append(part)
    prose = _LIST_AFTER_TEXT.sub(r"\1\n\n", "".join(joined))
    translated = _PICTURE.sub(shown, _LINK.sub(linked, prose))
    return re.sub(r"\0(\d+)\0", lambda match: shown_code(kept[int(match[1])]), translated)

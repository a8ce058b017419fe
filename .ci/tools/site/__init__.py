"""Builds the documentation site: `PYTHONPATH=.ci python -m tools.site`, which `make docs` runs.

Owns: which pages there are (`pages`), how repository files become pages (`markdown`), the pages
generated from the tables of options and errors and from docstrings (`options`, `errors`, `api`),
the check of links and anchors in what was built (`links`). Not here: the text of the pages.

Sources are in `aioproducer/docs` and where GitHub expects them; everything is put together
under `build/`, and nothing of it is part of a distribution.
"""

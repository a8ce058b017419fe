"""Builds the documentation site: `PYTHONPATH=.ci python -m tools.site`, which `make docs` runs.

`pages` lists the pages. `markdown` makes them of files of the repository; `options`, `errors` and
`api` make them of tables and docstrings. `links` checks the links and anchors of what was built.

Sources are in `aioproducer/docs` and where GitHub expects them; everything is put together
under `build/`, and nothing of it is part of a distribution.
"""

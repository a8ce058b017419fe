"""Builds what is published and checks it; `make package` runs it.

Owns: building (`build`), how a wheel is packed (`tight`), what a distribution may contain and weigh
(`contents`), the first program of somebody who installs it (`newcomer`). Must not know: where it is
published.
"""

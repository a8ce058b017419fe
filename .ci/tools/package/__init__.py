"""Builds what is published and checks it; `make package` runs it.

`build` builds, `contents` says what a distribution may contain and weigh, `quickstart` runs the
first steps of README.md on a wheel.
"""

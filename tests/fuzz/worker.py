"""One target under atheris, the coverage-guided fuzzer: `python -m fuzz.worker TARGET ARGUMENT...`.

The arguments are libFuzzer's. Owns: what is instrumented. Not here: corpora, budgets, reports.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["aioproducer"]):
    from aioproducer.wire import compiler
    from aioproducer.wire.fields import Struct
    from fuzz.guard import check
    from fuzz.targets import load

    TARGET = load(sys.argv[1])


def _make_seeds() -> None:
    """Make them for the coders of messages they need, which importing does not instrument.

    These come from no file. One that is compiled later stays as it is: each instrumented after the
    start makes every run slower.
    """
    plain = compiler._compile

    def compile_instrumented(cls: type[Struct], version: int, flexible: bool) -> compiler.Codec:
        codec = plain(cls, version, flexible)
        atheris.instrument_func(codec.encode)
        atheris.instrument_func(codec.decode)
        return codec

    compiler._compile = compile_instrumented
    for _ in TARGET.seeds():
        pass
    compiler._compile = plain


def main() -> None:
    _make_seeds()
    atheris.Setup([sys.argv[0], *sys.argv[2:]], lambda data: check(TARGET, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()

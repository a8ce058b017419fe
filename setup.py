"""Builds the native core; without a C compiler the pure-Python implementation is installed.

Everything else about the package is in pyproject.toml, but for the packages: one of them is called
otherwise in the tree than where it is installed.
"""

import os
import sys

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

# Python's flags include debug information: four fifths of the size. CFLAGS overrides this.
FLAGS = [] if sys.platform == "win32" or "CFLAGS" in os.environ else ["-g0"]
EXTENSIONS = [
    Extension(
        f"aioproducer.{module}",
        [f"aioproducer/{module.replace('.', '/')}.pyx"],
        extra_compile_args=FLAGS,
    )
    for module in (
        "records._native",
        "records._bulk",
        "records._arrow",
        "runtime.delivery._delivery",
        "runtime.send._fast_path",
    )
]


class OptionalBuildExt(build_ext):
    """All processors compile; a failed compilation warns and says what the user gets instead."""

    def finalize_options(self) -> None:
        """Compile the extensions side by side unless another number is asked for."""
        if self.parallel is None:
            self.parallel = os.cpu_count()
        super().finalize_options()

    def run(self) -> None:
        """Compile all extensions."""
        try:
            super().run()
        except Exception as error:
            self._warn(error)

    def build_extension(self, ext: Extension) -> None:
        """Compile one extension."""
        try:
            super().build_extension(ext)
        except Exception as error:
            ext.optional = True  # an in-place build must not copy the result
            self._warn(error)

    @staticmethod
    def _warn(error: Exception) -> None:
        print(
            "\nWARNING: aioproducer's native core could not be compiled "
            f"({type(error).__name__}: {error}).\n"
            "WARNING: The pure-Python implementation is installed instead: same behaviour, several "
            "times more CPU per record.\n"
            "WARNING: Install a C compiler and the Python headers, then reinstall.\n",
            file=sys.stderr,
        )


def extensions() -> list[Extension]:
    """Translate Cython to C."""
    from Cython.Build import cythonize

    return cythonize(EXTENSIONS, language_level="3", build_dir="build/cython")


# Spark finds data sources in top-level modules named `pyspark_*`.
DISCOVERED = "pyspark_aioproducer"

setup(
    packages=[*find_packages(include=["aioproducer*"]), DISCOVERED],
    package_dir={DISCOVERED: f"aioproducer/spark/discovery/{DISCOVERED}"},
    ext_modules=extensions(),
    cmdclass={"build_ext": OptionalBuildExt},
)

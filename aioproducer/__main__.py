"""`python -m aioproducer`: the same as the `aioproducer` command."""

import sys

from aioproducer.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m specviz`: the shell."""

import sys

from specviz.cli.main import main as main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m ironcurtain_proxy`."""

import sys

from ironcurtain_proxy.cli import main

if __name__ == "__main__":
    sys.exit(main())

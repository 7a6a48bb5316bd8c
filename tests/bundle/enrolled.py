"""The program on a machine whose administrator's directory lies elsewhere: `python -m …`.

The product reads one fixed path, which tests of an ordinary user cannot write.
"""

import os
import sys
from pathlib import Path

from ironcurtain_proxy.cli import main
from ironcurtain_proxy.config.policy.managed import find_managed, managed_paths

if __name__ == "__main__":
    place = Path(os.environ["ENROLLED_IN"])
    find_managed.__defaults__ = (place, os.geteuid())
    managed_paths.__defaults__ = (place,)
    sys.exit(main())

"""The version of this package and its directory.

Both stand apart from the public names, so that every folder may import them.
"""

from pathlib import Path
from typing import Final

VERSION: Final = "0.2.0"
PACKAGE_DIRECTORY: Final = Path(__file__).parent

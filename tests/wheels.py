"""Packages of Python, made on the spot: a directory of them stands for an index."""

import sys
import zipfile
from pathlib import Path
from typing import Final

VENV: Final = Path(sys.prefix) / "bin"
"""The directory of the real `uv` and `uvx`."""

FROM_WHEELS_ALONE: Final = {
    "UV_OFFLINE": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_PYTHON": sys.executable,
}
"""Variables under which `uv` asks no network."""


def add_wheel(index: Path, name: str, version: str, code: str, *, program: str = "") -> None:
    """Put a package of one module into a directory.

    Args:
        index: the directory.
        name: the package and its module.
        version: the package's.
        code: the module's.
        program: the name of a program that runs `main` of the module; empty: none.
    """
    about = f"{name}-{version}.dist-info"
    scripts = f"[console_scripts]\n{program} = {name}:main\n" if program else ""
    with zipfile.ZipFile(index / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", code)
        known = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        wheel.writestr(f"{about}/METADATA", known)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{about}/WHEEL", tags)
        wheel.writestr(f"{about}/entry_points.txt", scripts)
        wheel.writestr(f"{about}/RECORD", "")

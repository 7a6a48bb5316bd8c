"""`python -m ironcurtain_proxy`."""

import sys
from contextlib import suppress
from pathlib import Path

if __name__ == "__main__":
    # `python -m` puts the current directory first on the path. Where that is the agent's workspace,
    # an `orjson.py` which the agent wrote would run in here. One that was removed holds nothing.
    with suppress(FileNotFoundError):
        if sys.path and sys.path[0] in {"", str(Path.cwd())}:
            package = Path(__file__).resolve().parent.parent
            if package != Path.cwd().resolve():
                del sys.path[0]

    from ironcurtain_proxy.cli import main

    sys.exit(main())

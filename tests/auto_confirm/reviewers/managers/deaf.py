"""Never reads what it is asked, and starts a child that outlives it if it can."""

import signal
import subprocess
import sys
from pathlib import Path


def main(kept: Path) -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        partial = kept.with_suffix(".partial")
        partial.write_text(str(child.pid), encoding="utf-8")
        partial.rename(kept)
        signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""What bubblewrap is run through, and what that finds beside the sockets of its sandbox."""

import os
import platform
from pathlib import Path
from typing import Final

from ironcurtain_proxy.sandbox.calls import refused_calls

WRAPPER: Final = Path(__file__).with_name("bwrap")
"""A program; it says itself what it adds."""
CALLS: Final = "calls.bpf"
"""The filter, in the directory of the sockets."""


def prepare(directory: str) -> None:
    """Put the filter of system calls where the wrapper looks for it.

    Args:
        directory: the sandbox's own, which is srt's TMPDIR.

    Raises:
        OSError: it cannot be written.
    """
    program = refused_calls(platform.machine(), is_root=os.geteuid() == 0)
    if program is not None:
        Path(directory, CALLS).write_bytes(program)

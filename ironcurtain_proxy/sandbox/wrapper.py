"""The wrapper that starts bubblewrap, and its files beside the sandbox's sockets."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ironcurtain_proxy.sandbox.calls import refused_calls

WRAPPER: Final = Path(__file__).with_name("bwrap")
"""The wrapper program; its own comments describe what it adds."""
CALLS: Final = "calls.bpf"
"""The filter, in the directory of the sockets."""
MOUNTS: Final = "mounts"
"""The arguments for the first mounts, in the same directory."""


def prepare(directory: str, mounts: Sequence[str] = ()) -> None:
    """Write the filter of system calls and the first mounts to the files that the wrapper reads.

    Args:
        directory: the sandbox's own directory, which is srt's TMPDIR.
        mounts: arguments of bubblewrap that follow the mount of the root.

    Raises:
        OSError: it cannot be written.
    """
    program = refused_calls(platform.machine(), is_root=os.geteuid() == 0)
    if program is not None:
        Path(directory, CALLS).write_bytes(program)
    if mounts:
        content = b"".join(os.fsencode(one) + b"\0" for one in mounts)
        Path(directory, MOUNTS).write_bytes(content)

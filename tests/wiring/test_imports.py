"""What is off is not imported."""

import subprocess
import sys


def test_a_start_imports_what_looks_after_files_for_confined_servers_alone() -> None:
    code = (
        "import sys, ironcurtain_proxy.wiring.serving; "
        "print(*[one for one in sys.modules if one.endswith(('.leads', '.lookout', '.watchman'))])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=50, capture_output=True
    )
    assert ended.stdout.split() == []

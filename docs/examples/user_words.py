"""Tells the proxy what the user typed. python user_words.py DIRECTORY "WORDS OF THE USER" """

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

if not sys.argv[2:]:
    sys.exit(__doc__)
directory, words = Path(sys.argv[1]), sys.argv[2]
directory.mkdir(mode=0o700, parents=True, exist_ok=True)
partial = directory / "user-context.partial"
partial.touch(mode=0o600)
partial.write_text(json.dumps({"userMessage": words, "timestamp": datetime.now(UTC).isoformat()}))
partial.rename(directory / "user-context.json")

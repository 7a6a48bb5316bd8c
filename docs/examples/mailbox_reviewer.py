"""A reviewer: approves reads, denies the rest. python mailbox_reviewer.py DIRECTORY"""

import hashlib
import json
import sys
import time
from pathlib import Path

if not sys.argv[1:]:
    sys.exit(__doc__)
while True:
    for request in Path(sys.argv[1]).glob("request-*.json"):
        response = request.with_name(request.name.replace("request", "response", 1))
        try:
            raw = request.read_bytes()
        except FileNotFoundError:
            continue  # answered, expired or withdrawn meanwhile
        if not response.exists():
            reads = set(json.loads(raw)["roles"]) == {"read-path"}
            answer = {"decision": "approved" if reads else "denied", "reviewer": "reads-only"}
            answer["requestDigest"] = hashlib.sha256(raw).hexdigest()
            partial = response.with_suffix(".partial")
            partial.write_text(json.dumps(answer))
            partial.rename(response)
    time.sleep(0.1)

"""A reviewer on a phone: python ntfy_reviewer.py https://ntfy.example/QUESTIONS .../ANSWERS

Each question is a message with buttons. A button sends an answer whose proof fits this question and
this decision alone. This program passes on whatever arrives; the proxy checks the proof.
"""

import hashlib
import hmac
import json
import os
import sys
import threading
import time
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

if not sys.argv[2:]:
    sys.exit(__doc__)
QUESTIONS, ANSWERS = sys.argv[1:3]
NAME = os.environ["IRONCURTAIN_REVIEWER_NAME"]
TOKEN = Path(f"/dev/fd/{os.environ['IRONCURTAIN_REVIEWER_TOKEN_FD']}").read_bytes()
LONGEST = 2500  # bytes of arguments; ntfy takes 4096 for a whole message


def opened(url: str, body: bytes | None = None) -> HTTPResponse:
    access = os.environ.get("NTFY_TOKEN")  # reads and writes both topics; a phone has its own
    headers = {"Authorization": f"Bearer {access}"} if access else {}
    return urlopen(Request(url, body, headers), timeout=90)


def button(question: dict[str, Any], decision: str) -> dict[str, Any]:
    parts = ["ironcurtain-answer-1", NAME, question["id"], question["argumentsHash"], decision, ""]
    proof = hmac.new(TOKEN, "\n".join(parts).encode(), hashlib.sha256).hexdigest()
    answer = {"id": parts[2], "argumentsHash": parts[3], "decision": decision}
    body = json.dumps({**answer, "reviewer": NAME, "proof": proof})
    label = decision.capitalize()
    return {"action": "http", "label": label, "url": ANSWERS, "body": body, "clear": True}


def ask(question: dict[str, Any]) -> None:
    shown = json.dumps(question["request"]["arguments"], indent=1)
    is_whole = question["request"]["complete"] and len(shown.encode()) <= LONGEST
    # Nobody approves what was not shown.
    decisions = ["approve", "deny"] if is_whole else ["deny"]
    words = f"{question['reason']}\n{shown if is_whole else 'Too long to be shown here.'}"
    buttons = [button(question, decision) for decision in decisions]
    place, _, topic = QUESTIONS.rpartition("/")
    title = f"{question['server']}/{question['tool']}: {question['operation']}"
    message = {"topic": topic, "title": title, "message": words, "actions": buttons}
    opened(place, json.dumps(message).encode()).close()


def listen() -> None:
    while True:
        try:
            for line in opened(f"{ANSWERS}/json"):
                event = json.loads(line)
                if event["event"] == "message":
                    print(event["message"].replace("\n", " "), flush=True)
        except OSError as error:
            print(f"{urlsplit(ANSWERS).hostname}: {error}", file=sys.stderr)
        time.sleep(1)


threading.Thread(target=listen, daemon=True).start()
for line in sys.stdin:
    said = json.loads(line)
    if said["type"] == "review":
        ask(said)

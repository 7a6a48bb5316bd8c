"""Write what docs/servers.md says of popular servers from the results of their runs.

    scripts/packs/table.py

`run.py` makes the results; `needs.json` of the packs says what each server needs.
"""

from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import Final

import orjson

from ironcurtain_proxy.config.servers.recognition import needs_of
from ironcurtain_proxy.model.values import Json

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE / "results.json"
CASES: Final = HERE / "cases.json"
DOCUMENT: Final = HERE.parents[1] / "docs" / "servers.md"
KINDS: Final = ("read", "reach", "write")
_WIDTH: Final = 100


def section(results: Mapping[str, Mapping[str, str]]) -> str:
    """Return the last section of the page about servers: the popular ones."""
    cases: dict[str, dict[str, Json]] = orjson.loads(CASES.read_bytes())
    lines = [*_HEAD]
    for name in sorted(results):
        found = results[name]
        needs = needs_of(name)
        title = f"**{name}**"
        if "package" in found:
            title += f" (`{found['package']}` {found['version']})"
        said = [f"{title}: {_summary(found)}."]
        if needs.private:
            said.append(f"Has for itself: {', '.join(f'`~/{one}`' for one in needs.private)}.")
        if needs.hosts:
            said.append(f"`init` opens {', '.join(f'`{one}`' for one in needs.hosts)}.")
        if needs.closed:
            said.append(f"Keeps closed: {', '.join(f'`{one}`' for one in needs.closed)}.")
        if needs.advice:
            said.append(needs.advice)
        if note := cases.get(name, {}).get("note"):
            said.append(str(note))
        lines += _wrapped(" ".join(said))
    return "\n".join(lines) + "\n"


def _summary(found: Mapping[str, str]) -> str:
    if not found.get("start", "").startswith("works"):
        return f"does not start: {_short(found.get('start', ''))}"
    said = [f"{kind} {_short(found[kind])}" for kind in KINDS if kind in found]
    return "starts" + (f"; {'; '.join(said)}" if said else "")


def _short(verdict: str) -> str:
    if verdict.startswith("differs: "):
        return "does not work in the sandbox"
    return verdict


def _wrapped(text: str) -> list[str]:
    return wrap(
        text, _WIDTH, initial_indent="- ", subsequent_indent="  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


_HEAD: Final = """\
## Popular servers

Each server below was started in the sandbox that it gets by default, and without one, and made the
same calls in both: one that reads, one that reaches a host, one that writes. `scripts/packs/run.py`
repeats it, and `scripts/packs/table.py` writes this section. Every host was answered on the machine
of the test, and tokens had no worth: *works* means that the call succeeded, and *as without a
sandbox* that it failed in the same way in both, as with a token that means nothing or without the
database. A host in brackets is the one that the server asked.

`init` gives a known server what this section says. In a configuration by hand, a folder that a
server has for itself needs nothing, and a host goes into its
[sandbox](sandbox.md#open-more-for-a-server):
`"sandbox": { "network": { "allowedDomains": ["api.github.com"] } }`.

A server that connects to a database or a daemon on this machine or in a private network finds there
only the `services` that its sandbox names, because it goes past the sandbox's network proxy. With
`"sandbox": false` the policy alone holds it.

*Keeps closed* names hosts to which a server reports about its use: its sandbox never opens them,
and nobody is asked about a call because of them.

""".splitlines()


if __name__ == "__main__":
    before, _, _ = DOCUMENT.read_text().partition(f"{_HEAD[0]}\n")
    DOCUMENT.write_text(before + section(orjson.loads(RESULTS.read_bytes())))

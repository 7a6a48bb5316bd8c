"""What decisions cost, how many `decide` makes, what a sandbox and a call through the proxy add.

Everything is measured in one run, and ratios count: absolute times are those of this machine at
this moment.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson

from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.facts.arguments import Speller
from ironcurtain_proxy.facts.facts import FactReader
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.paths import PathReader
from ironcurtain_proxy.model.annotation import ArgumentRole, RoleSpec, ToolAnnotation
from ironcurtain_proxy.model.policy import ListCondition, PathCondition, Policy, ProtectedPath, Rule
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, PathValue, TextValue
from ironcurtain_proxy.model.values import RealPath

WORKSPACE = RealPath.from_text("/srv/workspace")


def write(line: str = "") -> None:
    """Print at once: a benchmark is watched."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def best_of(function: Callable[[], object], count: int = 5_000, rounds: int = 7) -> float:
    """Microseconds of one call, the best of several rounds: the others were disturbed."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            function()
        times.append((time.perf_counter() - start) / count)
    return min(times) * 1e6


def path_rule(name: str, effect: str, role: ArgumentRole, within: str) -> Rule:
    """A rule on one directory."""
    return Rule(
        name=name,
        effect="allow" if effect == "allow" else "escalate",
        reason=name,
        servers=frozenset({"filesystem"}),
        paths=PathCondition(roles=frozenset({role}), within=RealPath.from_text(within)),
    )


def policy_of(size: int) -> Policy:
    """A policy of `size` rules, of which the last dozen are about the tools measured here."""
    mine = [
        *(path_rule(f"docs{n}", "allow", "write-path", f"/srv/docs/{n}") for n in range(9)),
        path_rule("docs", "escalate", "write-path", "/srv/docs"),
        path_rule("reads", "allow", "read-path", "/srv"),
        Rule(
            name="owners",
            effect="allow",
            reason="ours",
            servers=frozenset({"github"}),
            lists=(
                ListCondition(
                    roles=frozenset({"github-owner"}),
                    allowed=frozenset({"acme"}),
                    kind="identifiers",
                ),
            ),
        ),
    ]
    others = [
        Rule(
            name=f"other{n}",
            effect="allow",
            reason="other",
            servers=frozenset({f"server{n}"}),
            tools=frozenset({f"tool{n}"}),
        )
        for n in range(size - len(mine))
    ]
    return Policy(
        rules=(*others, *mine),
        workspace=WORKSPACE,
        protected_paths=tuple(
            ProtectedPath(path=RealPath.from_text(f"/home/user/.secret{n}")) for n in range(12)
        ),
    )


def fact(name: str, role: ArgumentRole, text: str) -> ArgumentFact:
    """A path argument."""
    return ArgumentFact(name, (role,), (PathValue(text, RealPath.from_text(text)),))


def requests() -> Iterator[tuple[str, AccessRequest]]:
    """Calls of several kinds."""

    def ask(server: str, tool: str, *facts: ArgumentFact) -> AccessRequest:
        return AccessRequest(
            server=server, tool=tool, annotated=True, has_arguments=True, arguments=facts
        )

    yield (
        "path in the workspace",
        ask("filesystem", "read_file", fact("path", "read-path", "/srv/workspace/a/b.txt")),
    )
    yield (
        "move out of the workspace",
        ask(
            "filesystem",
            "move_file",
            fact("source", "read-path", "/srv/workspace/a"),
            fact("destination", "write-path", "/srv/docs/a"),
        ),
    )
    owner = ArgumentFact("owner", ("github-owner",), (TextValue("acme"),))
    yield "identifier", ask("github", "list_issues", owner)


def decisions() -> None:
    """One decision, once facts are gathered, with few rules and with many."""
    small, large = policy_of(20), policy_of(20_000)
    write(f"{'one decision, us':34}{'20 rules':>10}{'20,000':>10}{'ratio':>8}")
    for name, request in requests():
        few = best_of(lambda request=request: authorize(request, small))  # type: ignore[misc]
        many = best_of(lambda request=request: authorize(request, large))  # type: ignore[misc]
        write(f"{name:34}{few:10.1f}{many:10.1f}{many / few:8.2f}")


def facts() -> None:
    """Gathering the facts of one call, on a real directory."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory).resolve() / "a" / "b" / "c"
        place.mkdir(parents=True)
        (place / "file.txt").touch()
        (place / "link").symlink_to("file.txt")
        speller = Speller(home="/root", workspace=directory, cwd=None)
        reader = FactReader(PathReader(speller))
        remotes = GitRemotes({})
        spec = RoleSpec(default=("read-path",))
        annotation = ToolAnnotation(server="filesystem", tool="read", arguments={"path": spec})
        plan = reader.plan(annotation)
        write(f"{'facts of one call, us':34}{'':>10}")
        for name, text in (
            ("a file that exists", f"{place}/file.txt"),
            ("a new file", f"{place}/new.txt"),
            ("a link", f"{place}/link"),
        ):
            arguments: dict[str, object] = {"path": text}
            cost = best_of(lambda a=arguments: reader.read(plan, a, remotes))  # type: ignore[misc, arg-type]
            write(f"{name:34}{cost:10.1f}")


def throughput(calls: int = 100_000) -> None:
    """How many calls a second `decide` answers, of URLs and identifiers."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        stamp = {"generatedAt": "2026-01-01T00:00:00Z", "constitutionHash": "0", "inputHash": "0"}
        condition = {"roles": ["fetch-url"], "allowed": ["*.python.org"]}
        rules = [
            {"name": "docs", "if": {"domains": condition}, "then": "allow"},
            {"name": "issues", "if": {"tool": ["list_issues"]}, "then": "escalate"},
        ]
        words = {"description": "bench", "principle": "bench", "reason": "bench"}
        text = {"type": "string"}
        tools = {
            "fetch": ("get", {"url": ["fetch-url"]}),
            "github": ("list_issues", {"owner": ["github-owner"], "repo": ["github-repo"]}),
        }
        servers = {
            server: {
                "inputHash": "0",
                "tools": [
                    {
                        "toolName": tool,
                        "serverName": server,
                        "comment": "",
                        "args": args,
                        "inputSchema": {"type": "object", "properties": dict.fromkeys(args, text)},
                    }
                ],
            }
            for server, (tool, args) in tools.items()
        }
        policy = {**stamp, "rules": [{**rule, **words} for rule in rules]}
        annotations = {"generatedAt": stamp["generatedAt"], "servers": servers}
        (folder / "compiled-policy.json").write_bytes(orjson.dumps(policy))
        (folder / "tool-annotations.json").write_bytes(orjson.dumps(annotations))
        (folder / "engine.json").write_bytes(orjson.dumps({"home": directory}))
        with (folder / "calls.jsonl").open("wb") as file:
            for n in range(calls):
                name, arguments = (
                    ("fetch", {"url": f"https://docs.python.org/3/{n}"})
                    if n % 2
                    else ("github", {"owner": "acme", "repo": f"widgets{n % 50}"})
                )
                line = {"serverName": name, "toolName": tools[name][0], "arguments": arguments}
                file.write(orjson.dumps(line) + b"\n")
        start = time.perf_counter()
        with (folder / "calls.jsonl").open("rb") as source, (folder / "answers").open("wb") as sink:
            subprocess.run(
                [sys.executable, "-m", "ironcurtain_proxy", "decide", "--dir", directory],
                stdin=source,
                stdout=sink,
                check=True,
            )
        seconds = time.perf_counter() - start
        answered = sum(1 for _ in (folder / "answers").open("rb"))
        write(f"decide: {answered / seconds:,.0f} calls a second, its start included")


def main() -> int:
    """Run all parts, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "part",
        nargs="?",
        choices=(
            "all",
            "decisions",
            "escalations",
            "sandbox",
            "timeline",
            "many",
            "hooks",
            "proxy",
        ),
        default="all",
    )
    options, others = parser.parse_known_args()
    if others and options.part != "proxy":
        parser.error(f"only the part `proxy` takes {others[0]}")
    if options.part in ("all", "decisions"):
        decisions()
        write()
        facts()
        write()
        throughput()
        write()
    for part in ("escalations", "sandbox", "timeline", "hooks", "many"):
        # Minutes of calls: only where it is asked for.
        if options.part == part or (options.part == "all" and part != "many"):
            script = Path(__file__).with_name(f"bench_{part}.py")
            subprocess.run([sys.executable, str(script)], check=True)
            write()
    if options.part in ("all", "proxy"):
        script = Path(__file__).with_name("bench_proxy.py")
        return subprocess.run([sys.executable, str(script), *others], check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())

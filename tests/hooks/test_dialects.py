"""What each client sends, as recorded from the real programs, and what each may be answered."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.config.clients.entries import own_command
from ironcurtain_proxy.facts.client_tools import ServerCall, as_server_call, of_patch
from ironcurtain_proxy.hooks.claude import read_shell
from ironcurtain_proxy.hooks.copilot import COPILOT_TOOLS
from ironcurtain_proxy.hooks.cursor import CURSOR_TOOLS
from ironcurtain_proxy.hooks.dialects import DIALECTS
from ironcurtain_proxy.hooks.events import (
    AfterCall,
    Approve,
    AskInClient,
    BeforeCall,
    CallingAgent,
    HookClient,
    NoObjection,
    Prompt,
    Refuse,
    UnreadableEventError,
)
from ironcurtain_proxy.hooks.gemini import GEMINI_TOOLS
from ironcurtain_proxy.hooks.launching import path_before, server_of_our_name
from ironcurtain_proxy.model.values import Json

DATA: Final = Path(__file__).parents[1] / "data/hooks"
RECORDED: Final = sorted(DATA.glob("*/*/*.json"))
HERE: Final = "/home/me/project"


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: "/".join(file.parts[-3:]))
def test_every_recorded_event_is_read(file: Path) -> None:
    client: HookClient = next(one for one in DIALECTS if one == file.parts[-3])
    dialect = DIALECTS[client]
    event = file.stem.partition(".")[0]
    found = dialect.read_event(event, orjson.loads(file.read_bytes()))
    if isinstance(found, BeforeCall | AfterCall):
        # No table knows the tools of a server that the client started.
        is_known = dialect.events[event] != "server"
        for tool, given in found.calls:
            assert isinstance(as_server_call(tool, given, HERE), ServerCall) == is_known
    if isinstance(found, Prompt):
        assert found.text


def test_each_client_is_recorded_and_those_of_npm_in_an_older_version_too() -> None:
    recorded = {file.parts[-3:-1] for file in RECORDED}
    clients = [client for client, _ in recorded]
    assert {*clients} == {*DIALECTS}
    assert {one for one in clients if clients.count(one) > 1} == {"claude", "codex", "gemini"}


def before(decision: str) -> Json:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": "why",
        }
    }


ANSWERS: Final[dict[HookClient, list[Json]]] = {
    "claude": [{}, before("allow"), before("ask"), before("deny")],
    # An unknown field, an empty reason and `ask` each make it run the call.
    "codex": [None, None, before("deny"), before("deny")],
    "gemini": [{}, {}, {"decision": "ask", "reason": "why"}, {"decision": "deny", "reason": "why"}],
    "opencode": [
        {"decision": "allow"},
        {"decision": "allow"},
        {"decision": "deny", "reason": "why"},
        {"decision": "deny", "reason": "why"},
    ],
    "copilot": [
        {},
        {"permissionDecision": "allow", "permissionDecisionReason": "why"},
        {"permissionDecision": "ask", "permissionDecisionReason": "why"},
        {"permissionDecision": "deny", "permissionDecisionReason": "why"},
    ],
    # `ask` is lost in its Auto-review mode.
    "cursor": [
        {"permission": "allow"},
        {"permission": "allow"},
        {"permission": "deny", "user_message": "why", "agent_message": "why"},
        {"permission": "deny", "user_message": "why", "agent_message": "why"},
    ],
}


@pytest.mark.parametrize("client", ANSWERS)
def test_an_answer_holds_exactly_what_its_client_takes(client: HookClient) -> None:
    dialect = DIALECTS[client]
    verdicts = (NoObjection(), Approve("why"), AskInClient("why"), Refuse("why"))
    before = next(event for event, kind in dialect.events.items() if kind == "before")
    assert [dialect.answer(before, one) for one in verdicts] == ANSWERS[client]
    assert "IronCurtain denies it" in str(dialect.answer(before, Refuse("")))
    asked = [event for event, kind in dialect.events.items() if kind == "question"]
    for event in asked:
        silence, *_, denial = [dialect.answer(event, one) for one in verdicts]
        # A client's own question is left to its user; nobody is asked twice.
        assert not silence
        assert dialect.answer(event, AskInClient("why")) == silence
        assert "'deny', 'message': 'why'" in str(denial)
    assert [*asked] == [one for one in ("PermissionRequest",) if client in {"claude", "codex"}]


NOT_JUDGED: Final = {"description", "prompt", "replace_all", "instruction", "include"}


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: "/".join(file.parts[-3:]))
def test_an_argument_of_another_type_is_not_judged_as_if_it_were_not_there(file: Path) -> None:
    dialect, event = DIALECTS[file.parts[-3]], file.stem.partition(".")[0]
    if dialect.events[event] != "before":
        return
    payload = orjson.loads(file.read_bytes())
    given = payload[dialect.fields.given]
    for name in given.keys() - NOT_JUDGED:
        for odd in (0, True, {}, {"a": given[name]}, [given[name]], [[given[name]]]):
            if name == "paths" and isinstance(odd, list) and odd != [[given[name]]]:
                continue
            changed = {**payload, dialect.fields.given: {**given, name: odd}}
            found = dialect.read_event(event, changed)
            assert isinstance(found, BeforeCall)
            judged = [as_server_call(*one, HERE) for one in found.calls]
            assert "broken" in judged, (name, odd, judged)


def test_a_patch_names_every_file_that_it_touches_however_it_is_indented() -> None:
    patch = (
        "*** Begin Patch\n*** Update File: a\n*** Move to: /etc/b\n@@\n-x\n+y\n"
        "  *** Add File: /etc/c \n+z\n\t*** Delete File: d\n*** End Patch"
    )
    assert of_patch(patch) == (
        ("Edit", {"file_path": "a"}),
        ("Write", {"file_path": "/etc/b"}),
        ("Write", {"file_path": "/etc/c"}),
        ("Delete", {"file_path": "d"}),
    )
    event: dict[str, Json] = {"tool_name": "apply_patch", "cwd": HERE, "tool_input": {}}
    found = DIALECTS["codex"].read_event("PreToolUse", event)
    assert isinstance(found, BeforeCall)
    assert [as_server_call(*one, HERE) for one in found.calls] == ["broken"]


@pytest.mark.parametrize(
    "line",
    [
        *(f"{blank}*** Add File: /etc/c" for blank in "\u00a0\u3000\v\r\x85\u2028\ufeff"),
        *(
            "*** Add File:/etc/c",
            "*** Add File: /etc/c:d",
            "*** Add File: \u00a0c",
            "***Add File: c",
        ),
        *(
            "*** add file: c",
            "*** Add File: c\ufeff",
            "*** Move  to: /etc/c",
            "+x\r*** Add File: c",
        ),
    ],
)
def test_a_patch_with_a_name_that_one_client_alone_would_read_is_no_patch(line: str) -> None:
    """Codex takes the first six for the name of a file, and opencode those without a blank."""
    assert of_patch(f"*** Begin Patch\n*** Add File: a\n+x\n{line}\n+y\n*** End Patch") == ()


CLEAR: Final = ("a.txt", "./a b.txt", "{here}/new.txt", "{here}/sub/../a.txt", "sub/../../x", "~x")
UNCLEAR: Final[dict[HookClient, tuple[str, ...]]] = {
    "claude": ("link/../a.txt", "{here}/link/../a.txt", "a\0b", "{here}/at 9 AM.png"),
    "codex": ("~/a.txt", "~", "{here}/link/../a.txt"),
    "copilot": ("~/a.txt", "{here}/link/../a.txt"),
    "opencode": ("~/a.txt", "{here}/link/../a.txt"),
    "gemini": ("~/a.txt", "{here}/.git%2Fconfig", "%2e%2e/x", "@a.txt", "{here}/link/../a.txt"),
    "cursor": ("~/a.txt", "file:///etc/x", "%2e%2e/x"),
}


@pytest.mark.parametrize("client", DIALECTS)
def test_a_path_that_its_client_may_take_for_another_is_not_clear(
    client: HookClient, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    (tmp_path / "other/deep").mkdir(parents=True)
    (here / "link").symlink_to(tmp_path / "other/deep")
    (here / "a.txt").touch()

    def unclear(text: str, tool: str = "Read") -> bool:
        given: dict[str, Json] = {"file_path": text.format(here=here)}
        return DIALECTS[client].paths.is_unclear(tool, given, str(here))

    assert not [one for one in CLEAR if unclear(one)]
    assert [one for one in UNCLEAR[client] if not unclear(one)] == []
    assert unclear("~/a.txt") == (client != "claude")
    # Copilot CLI then searches both words, and opencode what is above.
    for tool, looks_elsewhere in (("Grep", {"copilot", "opencode"}), ("Glob", {"copilot"})):
        assert unclear("sub {here}/../other", tool) == (client in looks_elsewhere)
        assert not unclear("sub", tool)
    assert unclear("..\\other", "Grep") == (client == "opencode")
    # Gemini CLI changes a file of that name in whatever directory it finds one.
    (here / "away").symlink_to("nowhere")
    for name in ("settings.json", "away"):
        assert unclear(name, "Edit") == (client == "gemini")
    assert not unclear("settings.json", "Write")
    assert unclear("a/../" * 1000)
    # The machine takes no such name.
    for tool in ("Read", "Edit", "Grep", "Glob"):
        unclear("a" * 300, tool)
    assert not unclear("a.txt", "Edit")


def test_what_names_two_places_is_not_judged_by_one_of_them() -> None:
    for tool, given in (
        ("NotebookEdit", {"file_path": "a", "notebook_path": "/etc/b"}),
        *GEMINI_TOOLS.calls(
            "write_file", {"absolute_path": "a", "file_path": "/etc/b", "content": ""}
        ),
        *GEMINI_TOOLS.calls("list_directory", {"path": "a", "dir_path": "/etc"}),
        *GEMINI_TOOLS.calls(
            "run_shell_command", {"command": "ls", "dir_path": "a", "directory": "/"}
        ),
    ):
        assert as_server_call(tool, dict(given), HERE) == "broken"
    for odd in ("https://a.b)@c.d/", "https://a.b'@c.d", "https://a.b:80@c.d", "https://a.b\\.c.d"):
        asked = {"url": CURSOR_TOOLS.calls("WebFetch", {"url": odd})}
        asked["words"] = GEMINI_TOOLS.calls("web_fetch", {"prompt": f"sum up {odd} now"})
        for calls in asked.values():
            assert [as_server_call(*one, HERE) for one in calls] == ["broken"], odd
    assert as_server_call("WebFetch", {"url": "https://a.b\t.c.d/"}, HERE) == "broken"
    # Here another address begins for Gemini CLI, and this one has no slashes.
    for one in (
        {"prompt": "see https://a.example/\ufeffhttps://b.example"},
        {"url": "http:b.example"},
    ):
        parts = GEMINI_TOOLS.calls("web_fetch", {"prompt": "see https://a.example", **one})
        assert "broken" in [as_server_call(*call, HERE) for call in parts]
    pages = GEMINI_TOOLS.calls(
        "web_fetch", {"prompt": "sum up https://a.example/ and https://b.example/x"}
    )
    assert [given["url"] for _, given in pages] == ["https://a.example/", "https://b.example/x"]


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"pattern": "**/*.py"}, HERE),
        ({"pattern": "/etc/*.conf"}, "/etc"),
        ({"pattern": "~/.ssh/*"}, "~/.ssh"),
        ({"pattern": "../other/*", "path": "/home/me/project/src"}, "/home/me/project/other"),
    ],
)
def test_a_pattern_that_leads_out_of_its_directory_is_judged_where_it_leads(
    given: dict[str, Json], place: str
) -> None:
    found = as_server_call("Glob", given, HERE)
    assert isinstance(found, ServerCall)
    assert found.arguments["path"] == place


def test_a_tool_that_watches_a_command_is_judged_as_that_command() -> None:
    event: dict[str, Json] = {
        "tool_name": "Monitor",
        "cwd": HERE,
        "tool_input": {"command": "curl x", "cwd": "/"},
    }
    found = DIALECTS["claude"].read_event("PreToolUse", event)
    assert isinstance(found, BeforeCall)
    assert found.calls == (("Bash", {"command": "curl x"}),)


_SNAPSHOT: Final = "source /home/me/.claude/shell-snapshots/snapshot-bash-1-a.sh 2>/dev/null"
_REST: Final = (
    ">/dev/null 2>&1 || true && eval 'cd a; ls' < /dev/null && pwd -P >| /tmp/claude-1-cwd"
)


@pytest.mark.parametrize(
    ("sets", "is_known"),
    [
        # 2.1.269, and 2.1.332 where the shell is bash.
        ("shopt -u extglob || setopt NO_EXTENDED_GLOB NO_BARE_GLOB_QUAL;", True),
        ("\\builtin shopt -u extglob || \\builtin setopt NO_EXTENDED_GLOB;", True),
        ("\\builtin unalias -- 'unsetenv'; \\builtin unset -f -- 'unsetenv';", True),
        ("\\builtin source 'x';", False),
        ("rm -rf x;", False),
        ("shopt -u extglob; rm -rf x;", False),
    ],
)
def test_what_claude_code_s_shell_runs_around_a_command_is_its_own_or_unknown(
    sets: str, is_known: bool
) -> None:
    found = read_shell(f"{_SNAPSHOT} || true && {{ {sets} }} {_REST}", "/home/me/.claude")
    assert found is not None
    assert (found.command, found.is_known) == ("cd a; ls", is_known)


def test_a_server_s_call_in_cursor_is_passed_by_only_if_the_proxy_itself_is_started() -> None:
    own = str(Path(sys.prefix) / "bin/ironcurtain-proxy")
    for command, is_ours in (
        (own, True),
        (f"{own} serve --config x", True),
        ("ironcurtain-proxy", False),
        (f"/bin/evil {own}", False),
        ('"', False),
        ("", False),
    ):
        event: dict[str, Json] = {
            "tool_name": "read",
            "tool_input": "{}",
            "command": command,
            "workspace_roots": [HERE],
        }
        found = DIALECTS["cursor"].read_event("beforeMCPExecution", event)
        assert isinstance(found, BeforeCall)
        assert DIALECTS["cursor"].is_passed_by(found.tool) is is_ours, command
        assert as_server_call(*found.calls[0], HERE) == "none"


OWN: Final = str(Path(sys.prefix) / "bin/ironcurtain-proxy")


PROGRAM: Final = "ironcurtain-proxy"


def named(entry: Json, key: str = "mcpServers", name: str = "ironcurtain") -> str:
    return orjson.dumps({key: {name: entry}}).decode()


@pytest.mark.parametrize(
    ("client", "name", "text", "is_foreign"),
    [
        ("claude", ".mcp.json", named({"command": "x"}, name="other"), False),
        ("claude", ".mcp.json", named({"command": OWN}), False),
        ("claude", ".mcp.json", named({"command": "uvx", "args": ["ironcurtain-proxy"]}), False),
        ("claude", ".mcp.json", named({"command": "./ironcurtain-proxy"}), True),
        ("claude", ".mcp.json", named({"url": "https://a.b"}, name="IronCurtain-2"), True),
        ("claude", ".mcp.json", named({"command": OWN, "env": {"PATH": "."}}), True),
        ("claude", ".mcp.json", named({"command": OWN, "env": {"PATH": "/usr/bin:/bin"}}), False),
        ("claude", ".mcp.json", named({"command": OWN, "env": {"PATH": "/usr/bin:/tmp"}}), True),
        ("claude", ".mcp.json", named({"command": OWN, "env": {"SERVER_FILTER": "a"}}), False),
        ("claude", ".mcp.json", named({"command": OWN, "env": {"IRONCURTAIN_CONFIG": "x"}}), True),
        ("claude", ".mcp.json", named({"command": OWN, "env": {"HOME": "x"}}), True),
        ("claude", ".mcp.json", named({"command": OWN, "env": {"ALLOWED_DIRECTORY": "/"}}), True),
        ("claude", ".mcp.json", named({"command": OWN, "args": ["--config", "x"]}), True),
        ("claude", ".mcp.json", named({"command": "uvx", "args": ["--from", ".", PROGRAM]}), True),
        ("claude", ".mcp.json", named({"command": OWN, "env": {"LD_PRELOAD": "x"}}), True),
        ("claude", ".mcp.json", named(3), True),
        ("claude", ".mcp.json", '{"mcpServers": {"ironcurtain": ', True),
        ("claude", ".claude/agents/a/b.md", "---\nmcpServers:\n - ironcurtain: {}\n---", True),
        ("claude", ".claude/agents/b.md", "---\ntools: mcp__ironcurtain__x\n---", False),
        ("codex", ".codex/config.toml", '[mcp_servers.ironcurtain]\ncommand = "x"', True),
        ("gemini", ".gemini/settings.json", named({}), True),
        ("copilot", ".vscode/mcp.json", named({"command": "x"}, "servers"), True),
        ("opencode", "opencode.json", named({"command": ["x"]}, "mcp"), True),
        ("opencode", "opencode.json", named({"command": [OWN]}, "mcp"), False),
    ],
)
def test_a_server_of_a_project_that_has_our_name_and_is_another_is_not_passed_by(
    client: HookClient, name: str, text: str, is_foreign: bool, tmp_path: Path
) -> None:
    dialect, project = DIALECTS[client], tmp_path / "project/sub"
    project.mkdir(parents=True)
    # The user's own file, and that of the project above.
    for place in (tmp_path, tmp_path / "project"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)

        def look(place: Path = place) -> Path | None:
            return server_of_our_name(dialect, project, tmp_path)

        is_seen = is_foreign and place != tmp_path
        assert (look() is not None) is is_seen
        assert dialect.is_passed_by(f"{dialect.our_tools[0]}_x", look) is not is_seen


def test_what_init_writes_into_a_projects_file_is_this_proxy(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "bin").mkdir(parents=True)
    command, args = own_command(os.environ)

    def look(**env: str) -> Path | None:
        entry: Json = {"type": "stdio", "command": command, "args": [*args], "env": {**env}}
        (project / ".mcp.json").write_text(named(entry))
        return server_of_our_name(DIALECTS["claude"], project, tmp_path)

    path = f"{Path(command).parent}:/usr/bin"
    assert look(SERVER_FILTER="a", PATH=path, ALLOWED_DIRECTORY=str(project)) is None
    for one in (f"{project}/bin", ":/usr/bin", "bin"):
        assert look(PATH=f"{path}:{one}") is not None


def test_a_call_of_cursor_without_a_directory_is_in_its_one_root_or_not_understood() -> None:
    read = partial(DIALECTS["cursor"].read_event, "preToolUse")
    event: dict[str, Json] = {"tool_name": "Read", "tool_input": {"path": "x"}, "cwd": ""}
    found = read({**event, "workspace_roots": [HERE]})
    assert isinstance(found, BeforeCall)
    assert found.directory == HERE
    odd: list[Json] = [[HERE, "/other"], [], None, HERE, ["~"], [[HERE]]]
    for roots in odd:
        with pytest.raises(UnreadableEventError):
            read({**event, "workspace_roots": roots})
    with pytest.raises(UnreadableEventError):
        read({**event, "cwd": [], "workspace_roots": [HERE]})


def test_what_names_two_places_in_cursor_is_broken_and_a_strange_tool_unknown() -> None:
    odd: dict[str, Json] = {"path": "a", "file_path": "/etc/b", "content": "", "command": "ls"}
    for name in ("Read", "Write", "Grep", "Delete"):
        assert as_server_call(*CURSOR_TOOLS.calls(name, odd)[0], HERE) == "broken", name
    assert as_server_call(*CURSOR_TOOLS.calls("Bash", {"command": "ls"})[0], HERE) == "none"


def test_no_prompt_of_copilot_counts_that_its_user_did_not_write(tmp_path: Path) -> None:
    read = DIALECTS["copilot"].read_event
    event: dict[str, Json] = {"prompt": "push it", "cwd": str(tmp_path / "src")}
    assert read("userPromptSubmitted", event) == Prompt("push it")
    of_agent = read("userPromptSubmitted", {**event, "agentId": "a", "agentType": "task"})
    assert of_agent == Prompt("push it", CallingAgent("a", "task"))
    for name in (".github/hooks/x.json", ".github/copilot/settings.json", ".claude/settings.json"):
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text('{"hooks": {"sessionStart": [{"type": "prompt"}]}}')
        assert read("userPromptSubmitted", event) == Prompt(""), name
        file.unlink()


def test_a_command_that_ended_with_an_error_is_one_that_failed() -> None:
    def error(client: HookClient, event: str, payload: Json) -> str:
        assert isinstance(payload, dict)
        found = DIALECTS[client].read_event(event, payload)
        assert isinstance(found, AfterCall)
        return found.error

    recorded = {file: orjson.loads(file.read_bytes()) for file in RECORDED}
    failed = {
        "/".join(file.parts[-3:])
        for file, payload in recorded.items()
        if file.parts[-3] in {"gemini", "copilot", "opencode"}
        and file.stem.partition(".")[0] in {"AfterTool", "postToolUse", "PostToolUse"}
        and error(file.parts[-3], file.stem.partition(".")[0], payload)
    }
    assert failed == {
        "gemini/0.61.0/AfterTool.4.json",
        "copilot/1.0.102/postToolUse.json",
        "opencode/1.18.33/PostToolUse.6.json",
    }
    # What a command printed says nothing of its end.
    given: dict[str, Json] = {"toolName": "bash", "toolArgs": {"command": "cat log"}}
    shown = "<shellId: 0 completed with exit code 1>\n<shellId: 1 completed with exit code 0>"
    after: Json = {**given, "toolResult": {"textResultForLlm": shown}}
    assert not error("copilot", "postToolUse", after)


def test_no_prompt_of_cursor_counts_that_a_project_s_hook_may_have_written(tmp_path: Path) -> None:
    event: dict[str, Json] = {"prompt": "push it", "workspace_roots": [str(tmp_path / "a/src")]}
    assert DIALECTS["cursor"].read_event("beforeSubmitPrompt", event) == Prompt("push it")
    hooks = tmp_path / "a/.cursor/hooks.json"
    hooks.parent.mkdir(parents=True)
    hooks.write_text('{"hooks": {"stop": [{"command": "./again"}]}}')
    assert DIALECTS["cursor"].read_event("beforeSubmitPrompt", event) == Prompt("")


NO_TOOLS: Final = (
    *("bash", "BASH", "Bash ", "Bash\u0442", "read", "mcp__x__Bash", "mcp__xironcurtain__x"),
    *("mcp__plugin_x_ironcurtain__Bash", "mcp_ironcurtain__x", "MCP__ironcurtain__x"),
)


def test_a_name_that_only_looks_like_that_of_a_tool_is_not_known() -> None:
    dialect = DIALECTS["claude"]
    for name in NO_TOOLS:
        event: Json = {"tool_name": name, "tool_input": {"command": "ls"}, "cwd": HERE}
        assert isinstance(event, dict)
        found = dialect.read_event("PreToolUse", event)
        assert isinstance(found, BeforeCall)
        assert [as_server_call(*one, HERE) for one in found.calls] == ["none"], name
        assert name not in dialect.own_tools
        assert not dialect.is_passed_by(name)


def test_a_tool_is_either_judged_or_left_to_its_client_or_asked_about() -> None:
    for dialect in DIALECTS.values():
        asked = [name for names in dialect.asked_tools.values() for name in names]
        assert len(asked) == len({*asked})
        assert not {*asked} & dialect.own_tools
        for name in (*asked, *dialect.own_tools):
            event: Json = {dialect.fields.tool: name, dialect.fields.given: {}, "cwd": HERE}
            assert isinstance(event, dict)
            found = dialect.read_event(next(iter(dialect.events)), event)
            assert isinstance(found, BeforeCall)
            assert [as_server_call(*one, HERE) for one in found.calls] == ["none"], name


def test_no_prompt_of_claude_code_counts_that_an_agent_or_the_client_wrote(tmp_path: Path) -> None:
    transcript = tmp_path / "s.jsonl"
    event = {"cwd": str(tmp_path / "src"), "transcript_path": str(transcript)}

    def words(prompt: str = "push it") -> str | None:
        found = DIALECTS["claude"].read_event("UserPromptSubmit", {**event, "prompt": prompt})
        assert isinstance(found, Prompt)
        return found.text

    news = "<task-notification>\n<summary>push it</summary>\n</task-notification>"
    assert words(news) is None
    for prompt in (f"and {news}", " \n<channel source='x'>push it</channel>"):
        assert words(prompt) == ""
    assert words() == "push it"
    transcript.write_text('{"content":"\\"name\\":\\"CronCreate\\""}\n')
    assert words() == "push it"
    # It scheduled one before the session was resumed, or a sub-agent did.
    call = '{"type":"tool_use","id":"t","name":"ScheduleWakeup","input":{"prompt":"push it"}}\n'
    for file in (transcript, tmp_path / "s/subagents/agent-a.jsonl"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(call)
        assert words() == ""
        file.write_text("{}")
    # The call lies where two blocks meet.
    transcript.write_text(" " * ((1 << 20) - 10) + call)
    assert words() == ""
    transcript.write_text("{}")
    assert words() == "push it"
    # What cannot be looked through may hold one.
    os.truncate(transcript, 10 << 30)
    assert words() == ""
    transcript.unlink()
    os.mkfifo(transcript)
    assert words() == ""
    transcript.unlink()
    assert words() == "push it"
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/scheduled_tasks.json").write_text("{}")
    assert words() == ""


def test_a_tool_of_copilot_names_each_place_that_it_searches() -> None:
    assert COPILOT_TOOLS.calls("grep", {"pattern": "x", "paths": ["/etc", "/home"]}) == (
        ("Grep", {"path": "/etc", "pattern": "x"}),
        ("Grep", {"path": "/home", "pattern": "x"}),
    )
    # Neither a terminal's input nor a name of the common table is a known tool of this client.
    for name in ("write_bash", "Bash", "Read"):
        [(tool, given)] = COPILOT_TOOLS.calls(
            name, {"command": "ls", "input": "x", "file_path": "a"}
        )
        assert as_server_call(tool, given, HERE) == "none"
    [(tool, given)] = COPILOT_TOOLS.calls("apply_patch", {"input": "nothing"})
    assert as_server_call(tool, given, HERE) == "broken"
    event: dict[str, Json] = {"toolName": "view", "cwd": HERE, "toolArgs": '{"path": "a"}'}
    found = DIALECTS["copilot"].read_event("preToolUse", event)
    assert isinstance(found, BeforeCall)
    assert found.calls[0][1]["file_path"] == "a"
    with pytest.raises(UnreadableEventError):
        DIALECTS["copilot"].read_event("preToolUse", {**event, "toolArgs": "{"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("export PATH=/x:/y\\ z && ", "/bin:/x:/y z"),
        ('declare -x PATH="/x"; PATH+=:/y ; ', "/bin:/x::/y"),
        ("export PATH=$'/x':$PATH\n", "/bin:/x"),
        ('export PATH="$PWD/tools:${HOME}/b"; ', "/bin:/p/tools:/h/b"),
        ("PATH=`pwd`/x:/y export PATH;", "/bin:$:/y"),
        ("export MANPATH=/x XPATH=/y", "/bin"),
        ("source /nowhere/at-all 2>/dev/null || true && ", "/bin"),
    ],
)
def test_what_a_shell_does_before_a_command_tells_where_it_looks_for_programs(
    text: str, found: str
) -> None:
    assert path_before(text, {"PATH": "/bin", "PWD": "/p", "HOME": "/h"}) == found

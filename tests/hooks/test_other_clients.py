"""The real Codex CLI, Gemini CLI, Copilot CLI and opencode, each driven by a scripted model."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from ironcurtain_proxy.hooks.dialects import DIALECTS
from ironcurtain_proxy.hooks.events import HookClient
from ironcurtain_proxy.hooks.installing import install, place_in, remove
from ironcurtain_proxy.hooks.launching import INTERPRETER, STUB
from ironcurtain_proxy.hooks.places import client_directory, directory_by
from ironcurtain_proxy.model.values import Json
from tests.hooks.hooked import CODEX, COPILOT, GEMINI, NODE, OPENCODE, HookedHome
from tests.hooks.scripted_model import (
    Block,
    ScriptedModel,
    answer_claude,
    answer_codex,
    answer_gemini,
    serving,
)

pytestmark = pytest.mark.timeout(300)


class RealClient(Struct, frozen=True):
    """One client: its program, its model, and its words for a command and for the result."""

    name: HookClient
    program: Path
    answer: Callable[[ScriptedModel, str, Block], tuple[bytes, str]]
    shell: tuple[str, str]
    denied: str
    unanswered: str = "no approval channel available"
    """Why a call was denied that nobody could be asked about."""
    is_open: bool = False
    """Whether it runs a call whose hook was ended by a signal."""


CLIENTS = [
    RealClient(
        "codex",
        CODEX,
        answer_codex,
        ("exec_command", "cmd"),
        "blocked by PreToolUse hook",
        is_open=True,
    ),
    RealClient(
        "gemini",
        GEMINI,
        answer_gemini,
        ("run_shell_command", "command"),
        "execution blocked",
        is_open=True,
    ),
    RealClient(
        "copilot",
        COPILOT,
        answer_claude,
        ("bash", "command"),
        "Denied by preToolUse hook",
        "unable to ask user for confirmation",
    ),
    RealClient("opencode", OPENCODE, answer_claude, ("bash", "command"), "Denied by IronCurtain"),
]


@pytest.fixture(scope="module", params=CLIENTS, ids=lambda one: one.name)
def client(request: pytest.FixtureRequest) -> RealClient:
    found = request.param
    assert isinstance(found, RealClient)
    if not found.program.exists():
        pytest.skip(f"{found.name} is not installed: npm ci")
    return found


def hooked(client: RealClient, root: Path) -> HookedHome:
    home = HookedHome(root)
    (home.workspace / "notes.txt").write_text("old")
    if client.name == "gemini":
        directory = directory_by("gemini", home.home, os.environ)
        directory.mkdir(parents=True)
        chosen = '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'
        (directory / "settings.json").write_text(chosen)
    install(place_in(client.name, home.home, home.state))
    return home


def run(client: RealClient, home: HookedHome, model: ScriptedModel) -> None:
    start = {
        "codex": home.run_codex,
        "gemini": home.run_gemini,
        "copilot": home.run_copilot,
        "opencode": home.run_opencode,
    }[client.name]
    out, err = start(model).communicate(timeout=250)
    assert "done" in out, (out, err)


def commands(client: RealClient, *texts: str) -> list[tuple[str, Block]]:
    tool, argument = client.shell
    return [(tool, {argument: text, "description": "x"}) for text in texts]


@contextmanager
def launched_by_links(client: RealClient, home: HookedHome) -> Iterator[Path]:
    """Let the client's hooks start by a link, which is given: without it they start nothing."""
    directory = client_directory(client.name, home.home, home.state)
    names = ("hooks.json", "settings.json", "hooks/ironcurtain.json", "ironcurtain.json")
    file = next(one for name in names if (one := directory / name).exists())
    # The launcher is the same for all: each of its two parts is a link for two of the clients.
    word = INTERPRETER if client.name in {"codex", "copilot"} else str(STUB)
    link = home.home / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(word)
    # The word ends a command line's part: a blank follows, or a list's quotation mark.
    before = file.read_text()
    file.write_text(re.sub(rf'{re.escape(word)}(?=[ "])', str(link), before))
    assert str(link) in file.read_text()
    yield link
    file.write_text(before)


def end_by_signal(client: HookClient, link: Path) -> None:
    """Let the launcher of each hook, which waits for the link's program, be killed by it."""
    words = "#!/bin/sh\nkill -9 $PPID $$\n"
    if client not in {"codex", "copilot"}:
        words = "import os\nos.kill(os.getppid(), 9)\nos.kill(os.getpid(), 9)\n"
    link.unlink(missing_ok=True)
    link.write_text(words)
    link.chmod(0o755)


def test_no_program_of_a_project_runs_by_what_it_sets_for_commands_alone(
    client: RealClient, tmp_path: Path
) -> None:
    home, program = hooked(client, tmp_path), tmp_path / "home/project/bin/ls"
    path = f'PATH = "{program.parent}:{os.environ["PATH"]}"'
    settings = {
        "codex": (".codex/config.toml", f"[shell_environment_policy.set]\n{path}\n"),
        "gemini": (".gemini/settings.json", f'{{"tools": {{"shell": {{"pager": "{program}"}}}}}}'),
        "opencode": ("opencode.json", f'{{"shell": "{program}", /* c */}}'),
    }
    if client.name not in settings:  # nothing is known by which a project could
        with serving(commands(client, LEAVES), client.answer) as model:
            run(client, home, model)
        assert client.denied in model.results[0][1]
        return
    name, text = settings[client.name]
    file = home.workspace / name
    for one in (file, program):
        one.parent.mkdir(exist_ok=True)
    file.write_text(text)
    program.write_text(f"#!/bin/sh\necho x > {tmp_path}/ran\n")
    program.chmod(0o755)
    if client.name == "codex":
        home.codex_settings = f'[projects."{home.workspace}"]\ntrust_level = "trusted"\n'
    with serving(commands(client, "ls"), client.answer) as model:
        run(client, home, model)
    assert client.denied in model.results[0][1]
    assert not (tmp_path / "ran").exists()


LEAVES = "touch made && curl https://example.com"
READERS: dict[HookClient, tuple[str, str]] = {
    "gemini": ("read_file", "file_path"),
    "copilot": ("view", "path"),
    "opencode": ("read", "filePath"),
}


BELOW = ("a%20b.txt", "link/../x.txt", "notes.txt")
GIVEN = ["cat notes.txt", LEAVES, "ls", "ls", "touch made", "touch signalled"]


class Moved(Struct, frozen=True):
    """A session of a client that has its files elsewhere. The start of a client takes seconds."""

    home: HookedHome
    reads: list[str]
    """The results of reading files."""
    results: list[str]
    """Those of the commands that came then, of which the later ones have no kernel or no hook."""


def reads(client: RealClient, home: HookedHome) -> list[tuple[str, Block]]:
    (home.workspace / "~").mkdir()
    (home.workspace / "~/x.txt").write_text("taken for the home")
    (home.workspace / "a b.txt").write_text("decoded")
    (home.home / ".config/deep").mkdir(parents=True)
    (home.home / ".config/x.txt").write_text("behind the link")
    (home.workspace / "link").symlink_to(home.home / ".config/deep")
    if client.name not in READERS:
        return []
    tool, argument = READERS[client.name]
    files = ("~/x.txt", *(f"{home.workspace}/{one}" for one in BELOW))
    read: list[tuple[str, Block]] = [(tool, {argument: one}) for one in files]
    if tool == "read_file":
        return read
    searched: list[tuple[str, Block]] = [
        ("grep", {"pattern": "link", "path": one, "output_mode": "content"})
        for one in (f"link {home.home}/.config/x.txt", "..\\.config")
    ]
    return searched + read


@pytest.fixture(scope="module")
def moved(client: RealClient, tmp_path_factory: pytest.TempPathFactory) -> Moved:
    root = tmp_path_factory.mktemp("moved")
    variable, _ = DIALECTS[client.name].places.moved_by
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(variable, str(root / "moved"))
        home = hooked(client, root)
    home.variables[variable] = str(root / "moved")
    with launched_by_links(client, home) as link:
        read = reads(client, home)
        with serving([*read, *commands(client, *GIVEN)], client.answer) as model:
            model.before[len(read) + 3] = lambda: os.kill(home.kernel(), signal.SIGKILL)
            model.before[len(read) + 4] = link.unlink
            model.before[len(read) + 5] = lambda: end_by_signal(client.name, link)
            run(client, home, model)
    texts = [text for _, text in model.results]
    assert len(texts) == len(read) + len(GIVEN)
    return Moved(home, texts[: len(read)], texts[len(read) :])


def test_calls_run_as_the_policy_says_and_none_without_a_kernel_or_a_hook_that_runs(
    client: RealClient, moved: Moved
) -> None:
    home, texts = moved.home, moved.results[:5]
    # What a client makes of a hook that was killed itself is the client's own.
    assert (home.workspace / "signalled").exists() == client.is_open
    assert [client.denied in text for text in texts] == [False, True, False, True, True]
    assert client.unanswered in texts[1]
    # A connection that the dying kernel had taken is reset.
    assert "so nothing was run" in texts[3]
    assert not (home.workspace / "made").exists()
    ended = [
        str(one["result"]["status"])
        for one in home.outcomes()
        if isinstance(one["result"], dict)
        if isinstance(one["arguments"], dict) and "command" in one["arguments"]
    ]
    # Copilot asks its user, finds none, and says nothing more of the call.
    never_ran = "error" if client.name == "copilot" else "denied"
    assert sorted(ended) == [never_ran, "success", "success"]
    assert {one["hookClient"] for one in home.records()} == {client.name}


def test_a_client_whose_variable_names_another_place_has_its_hooks_there(
    client: RealClient, moved: Moved
) -> None:
    home = moved.home
    assert not (home.home / DIALECTS[client.name].places.directory).exists()
    place = place_in(client.name, home.home, home.state)
    assert str(place.file).startswith(home.variables[DIALECTS[client.name].places.moved_by[0]])
    assert remove(place) == "restored"


def test_a_client_opens_the_file_that_was_judged(client: RealClient, moved: Moved) -> None:
    if client.name not in READERS:
        pytest.skip("it reads files by commands")
    found = moved.reads
    leaks = ("taken for the home", "decoded", "behind the link")
    assert [[one for one in leaks if one in text] for text in found] == [[]] * len(found)
    assert "old" in found[-1]


@pytest.mark.skipif(not GEMINI.exists(), reason="Gemini CLI is not installed: npm ci")
def test_in_the_plan_mode_of_gemini_cli_a_relative_path_leads_among_its_plans_and_nowhere_else(
    tmp_path: Path,
) -> None:
    client = next(one for one in CLIENTS if one.name == "gemini")
    home = hooked(client, tmp_path)
    names = ("plan.md", "../../../settings.md", "sub/plan.md", "notes.txt")
    calls = [("write_file", dict[str, Json](file_path=one, content="planned")) for one in names]
    with serving(calls, client.answer) as model:
        home.run_gemini(model, "plan").communicate(timeout=250)
    own = home.home / ".gemini"
    found = [one for one in home.home.rglob("*.[mt]*") if one.read_bytes() == b"planned"]
    assert [one.relative_to(own).match("tmp/project/*/plans/plan.md") for one in found] == [True]
    assert "must be within the designated plans directory" in model.results[1][1]


CALL = """
const { IronCurtain } = await import(process.argv[1])
const client = { session: { get: async () => ({ data: { id: "s" } }) } }
const hooks = await IronCurtain({ directory: process.cwd(), client })
const [given, call] = [{ args: { command: process.argv[2] } }, { tool: "bash", sessionID: "s" }]
const before = hooks["tool.execute.before"]({ ...call, callID: "c" }, given)
console.log(await before.then(() => "runs", (error) => error.message))
"""
"""A call as opencode announces it to our plugin."""


@pytest.mark.skipif(not NODE.exists(), reason="Node.js 22 is not installed: npm ci")
def test_in_opencode_a_call_runs_whose_hook_fails_only_where_hooks_only_record(
    tmp_path: Path,
) -> None:
    client = CLIENTS[-1]
    home = hooked(client, tmp_path)
    home.observe("opencode")
    plugin = home.home / ".config/opencode/plugins/ironcurtain.js"

    def called(*, observes: bool, is_broken: bool = True) -> str:
        install(place_in(client.name, home.home, home.state), observes=observes)
        with ExitStack() as links:
            if is_broken:
                links.enter_context(launched_by_links(client, home)).unlink()
            words = [str(NODE), "--input-type=module", "-e", CALL, str(plugin), LEAVES]
            return subprocess.run(
                words, env=home.environment(), cwd=home.workspace, capture_output=True, text=True,
                check=True,
            ).stdout  # fmt: skip

    assert called(observes=True, is_broken=False) == "runs\n"
    assert {(one["hookClient"], one["observed"]) for one in home.records()} == {("opencode", True)}
    assert called(observes=True) == "runs\n"
    assert called(observes=False).startswith("Denied by IronCurtain: ")

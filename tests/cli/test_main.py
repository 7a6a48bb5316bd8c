"""The command line as a whole."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.cli.arguments import COMMANDS
from tests import program
from tests.cli.test_decide import run
from tests.program import FRESH, PATIENCE
from tests.tables import table


def named(text: str) -> set[str]:
    return {line.split()[0] for line in text.splitlines() if line.startswith("  ") and line.strip()}


@pytest.mark.parametrize("words", [["--help", "--all"], ["help", "--all"], ["-h", "--all"]])
def test_the_whole_help_names_every_command_with_an_example(words: list[str]) -> None:
    result = run(*words)
    assert result.returncode == 0
    assert {*COMMANDS} <= named(result.stdout)
    assert "examples:" in result.stdout


@pytest.mark.parametrize("words", [["--help"], ["help"], ["-h"]])
def test_help_shows_seven_commands_and_where_the_rest_is(words: list[str]) -> None:
    result = run(*words)
    assert result.returncode == 0
    shown = named(result.stdout.partition("examples:")[0]) & {*COMMANDS}
    assert shown == {"init", "review", "status", "audit", "rollback", "explain", "doctor"}
    assert "ironcurtain-proxy --help --all" in result.stdout


def test_help_of_a_command_is_that_commands() -> None:
    assert run("help", "audit").stdout == run("audit", "--help").stdout


@pytest.mark.parametrize(
    ("word", "meant"),
    table("cli/words.slips", list[tuple[str, str]]),
)
def test_a_word_of_other_programs_or_a_slip_leads_to_the_command(word: str, meant: str) -> None:
    result = run(word)
    assert result.returncode == 2
    assert f'did you mean "{meant}"?' in result.stderr


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("audit tail --gerp x", "--grep"),
        ("audit tial", "tail"),
        ("audit tail --decision denid", "denied"),
        ("hooks install cladue", "claude"),
        ("check --confg x", "--config"),
        ("--confg x", "--config"),
    ],
)
def test_an_unknown_option_or_word_is_answered_with_the_nearest(line: str, meant: str) -> None:
    result = run(*line.split())
    assert result.returncode == 2
    assert result.stderr.endswith(f": did you mean {meant}?\n")


def test_options_before_a_command_are_answered_with_the_order() -> None:
    result = run("--config", "x.json", "status")
    assert result.returncode == 2
    assert "the command stands first: ironcurtain-proxy status" in result.stderr


def test_a_terminal_of_another_encoding_is_shown_escapes(tmp_path: Path) -> None:
    wrong = tmp_path / "ü.json"
    wrong.write_text('{"x…": 1}', "utf-8")
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONIOENCODING": "ascii"}
    done = program.run([*program.PROXY, "check", "--config", str(wrong)], environ)
    assert "Traceback" not in done.stderr
    assert r"\u2026" in done.stdout


@pytest.mark.parametrize("word", ["xyz", "frobnicate", "undoing", "qwerty"])
def test_a_word_that_is_like_none_gets_no_suggestion_that_is_none(word: str) -> None:
    assert "did you mean" not in run(word).stderr


@pytest.mark.parametrize("is_set_up", [False, True])
def test_in_a_terminal_the_bare_command_says_what_to_run(tmp_path: Path, is_set_up: bool) -> None:
    if is_set_up:
        (tmp_path / ".ironcurtain").mkdir()
        (tmp_path / ".ironcurtain/mcp-servers.json").write_text("{}")
    leader, follower = pty.openpty()
    environ = {**os.environ, "HOME": str(tmp_path)}
    ended = subprocess.run(
        FRESH, stdin=follower, stdout=follower, env=environ, timeout=PATIENCE, check=False
    )
    os.close(follower)
    said = b""
    with suppress(OSError):
        while data := os.read(leader, 4096):
            said += data
    os.close(leader)
    assert ended.returncode == 0
    assert (b"Nothing is set up yet. Run `ironcurtain-proxy init`" in said) is not is_set_up
    assert (b"ironcurtain-proxy review" in said) is True


def test_a_terminal_that_cannot_draw_is_no_screen_for_review(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    environ = {**os.environ, "HOME": str(tmp_path), "TERM": "dumb"}
    ended = subprocess.run(
        [*FRESH, "review"],
        stdin=follower, stdout=follower, stderr=follower, env=environ, check=False,
    )  # fmt: skip
    said = os.read(leader, 4096)
    os.close(follower)
    os.close(leader)
    assert ended.returncode == 2
    assert b"review --plain" in said


@pytest.mark.parametrize("command", ["doctor", "check"])
def test_on_a_fresh_machine_the_checks_lead_to_init(tmp_path: Path, command: str) -> None:
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [*FRESH, command], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "ironcurtain-proxy init" in done.stdout


def test_an_unknown_command_is_refused_with_the_known_ones() -> None:
    result = run("sevre")
    assert result.returncode == 2
    assert "serve" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_version_is_printed() -> None:
    assert run("--version").stdout.startswith("ironcurtain-proxy ")


@pytest.mark.parametrize("command", ["decide", "check", "audit", "serve"])
def test_commands_import_nothing_heavy_before_they_run(command: str) -> None:
    code = (
        f"import sys, ironcurtain_proxy.cli.{command}; "
        "sys.exit(bool({'mcp', 'pydantic', 'litellm', 'textual', 'sqlalchemy'} & {*sys.modules}))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE).returncode == 0
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words", [["--help"], ["audit", "--help"], ["shell", "ls"], ["audit", "tail", "--log", "log"]]
)
def test_an_output_on_a_full_disk_ends_with_one_line_and_a_failure(
    tmp_path: Path, words: list[str], unbuffered: str
) -> None:
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin", "PYTHONUNBUFFERED": unbuffered}
    (tmp_path / "log").write_text("{}\n")
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*FRESH, *words],
            stdout=full, stderr=subprocess.PIPE, env=environ, cwd=tmp_path, check=False,
        )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr == b"ironcurtain-proxy: cannot write: No space left on device\n"


def test_a_command_that_needs_a_current_directory_says_that_it_was_removed(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    words = ["-c", 'rmdir "$0" && exec "$@"', str(here), *FRESH, "status"]
    ended = subprocess.run(
        ["/bin/sh", *words],
        capture_output=True, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, cwd=here,
        check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr == (
        b"ironcurtain-proxy: the current directory has been removed: change to another one\n"
    )


@pytest.mark.parametrize(
    "line",
    table("cli/words.no_files", list[str]),
)
def test_a_command_neither_waits_for_what_is_no_file_nor_breaks(line: str, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "loop"):
        words = [name if word == "FILE" else word for word in line.split()]
        done = program.run([*program.PROXY, *words], environ, tmp_path)
        assert "Traceback" not in done.stderr, name
        assert done.returncode in {0, 1, 2}, name
        assert done.stdout or done.stderr or "tail" in line, name


@pytest.mark.parametrize(
    ("line", "says"),
    table("cli/main.json_is_printed_as_such", list[tuple[str, str]]),
)
def test_json_is_printed_as_such_or_not_at_all(line: str, says: str, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    (tmp_path / "log").write_text("{}\n")
    (tmp_path / "policy.json").write_bytes((program.ROOT / "compiled-policy.json").read_bytes())
    done = program.run([*program.PROXY, *line.split()], environ, tmp_path)
    assert "Traceback" not in done.stderr
    assert says in (done.stdout and orjson.dumps(orjson.loads(done.stdout)).decode()) + done.stderr


def test_a_record_that_is_torn_is_no_line_of_json(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b'\xff\xfe\n{"seq": 1}\n{"seq": 2')
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = program.run([*program.PROXY, "audit", "tail", "log", "--json"], environ, tmp_path)
    assert done.stdout == '{"seq": 1}\n'


def test_without_standard_error_and_input_the_exit_status_is_the_same() -> None:
    ended = subprocess.run(
        ["/bin/sh", "-c", '"$@" <&- 2>&-', "sh", *program.PROXY, "nonsense"], check=False
    )
    assert ended.returncode == 2


def test_garbage_is_not_looked_for_in_imported_modules() -> None:
    """A single look through them took a tenth of the start."""
    code = "import gc; from ironcurtain_proxy.cli import main; main(['completion', 'bash']); "
    found = subprocess.run(
        [sys.executable, "-c", code + "print(gc.isenabled(), gc.get_freeze_count() > 10_000)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert found.stdout.endswith("\nTrue True\n")

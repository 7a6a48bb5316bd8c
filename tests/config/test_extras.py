"""The base installation alone: what needs an extra says so in one line.

Each test runs the real command line in a process of its own, in which the libraries of the extras
cannot be imported or found. It is a fork of one that has imported what can be.
"""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import orjson
import pytest
from packaging.requirements import Requirement

from ironcurtain_proxy.config.extras import MODULES
from tests.source import PACKAGE, nodes, one_worker
from tests.tables import table

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ABSENT = frozenset(name for names in MODULES.values() for name in names) - {"cryptography"}
"""What the base installation lacks; `cryptography` comes with the SDK."""

FORKING = """\
import importlib, json, os, sys, tempfile
from tests.fork_server import freeze, leave
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if any(f"{name}.".startswith(f"{one}.") for one in self.absent):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
blocker = Blocker()
blocker.absent, modules = map(json.loads, sys.argv[1:])
sys.meta_path.insert(0, blocker)
for module in modules:
    importlib.import_module(module)
freeze()
for line in sys.stdin:
    code, arguments, absent, environ = json.loads(line)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        pid = os.fork()
        if pid == 0:
            for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), out, errors)):
                os.dup2(file if number == 0 else file.fileno(), number)
            break
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said = []
        for file in (out, errors):
            file.seek(0)
            said.append(file.read().decode())
        print(json.dumps([status, *said]), flush=True)
else:
    sys.exit()
sys.stdin = open(0)
sys.argv[1:] = arguments
blocker.absent = absent
os.environ.clear()
os.environ.update(environ)
try:
    exec(code)
except SystemExit as ended:
    leave(ended.code)
leave(None)
"""
"""For each line that is read, a fork that runs the code in it."""

MAIN = "from ironcurtain_proxy.cli import main\nsys.exit(main(sys.argv[1:]))\n"
EACH = """\
import json, os, tempfile
from ironcurtain_proxy.cli import main
from tests.fork_server import leave
for command in sys.argv[1:]:
    with tempfile.TemporaryFile() as said:
        pid = os.fork()
        if pid == 0:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            leave(main([command]))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said.seek(0)
        print(json.dumps([command, code, said.read().decode()]), flush=True)
"""
"""Each command in a fork: what is slow is to import what they share."""

LLM = "pip install 'ironcurtain-proxy[llm]'"
ENGINE = "pip install 'ironcurtain-proxy[engine]'"


@pytest.fixture(scope="module", autouse=True)
def forking() -> Iterator[None]:
    """The process whose forks have no library of an extra."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKING, *map(orjson.dumps, (sorted(ABSENT), [*_base_modules()]))],
        env={"PATH": "/usr/bin:/bin"},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        _FORKING.append(process)
        yield
        _FORKING.clear()
        process.communicate()


_FORKING: list[subprocess.Popen[bytes]] = []


def _run(
    *arguments: str, home: Path, code: str = MAIN, absent: frozenset[str] = ABSENT
) -> subprocess.CompletedProcess[str]:
    [process] = _FORKING
    assert process.stdin is not None
    assert process.stdout is not None
    environ = {"HOME": str(home), "PATH": f"{home}/bin:/usr/bin:/bin"}
    process.stdin.write(orjson.dumps([code, arguments, sorted(absent), environ]) + b"\n")
    process.stdin.flush()
    status, out, errors = orjson.loads(process.stdout.readline())
    return subprocess.CompletedProcess(arguments, status, out, errors)


def _configure(home: Path, **sections: object) -> None:
    (home / "project").mkdir()
    (home / ".ironcurtain").mkdir(mode=0o700)
    config = {
        "allowedDirectory": str(home / "project"),
        "mcpServers": {"echo": {"command": "true"}},
        **sections,
    }
    (home / ".ironcurtain" / "config.json").write_bytes(orjson.dumps(config))


@pytest.mark.parametrize("command", ["metrics", "patterns list"])
def test_a_command_of_the_engine_names_the_extra_it_lacks(command: str, tmp_path: Path) -> None:
    done = _run(*command.split(), home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "sqlalchemy, which is not installed" in done.stderr
    assert done.stderr.endswith(f": {sys.executable} -m {ENGINE}\n")


def test_where_uv_made_the_environment_the_requirements_are_named_for_it(tmp_path: Path) -> None:
    """An environment of uv has no pip, and uv would search an index for this distribution."""
    done = _run("metrics", home=tmp_path, absent=ABSENT | {"pip"})
    assert done.returncode == 2
    words = done.stderr.partition(": uv ")[2].split()
    assert words[:4] == ["pip", "install", "--python", sys.executable]
    required = PROJECT["optional-dependencies"]["engine"]
    assert [name_of(one.strip("'")) for one in words[4:]] == [name_of(one) for one in required]


def test_init_takes_a_server_over_the_network_without_an_extra(tmp_path: Path) -> None:
    (tmp_path / ".cursor").mkdir()
    entry = {"mcpServers": {"far": {"url": "https://mcp.example/mcp"}}}
    (tmp_path / ".cursor" / "mcp.json").write_bytes(orjson.dumps(entry))
    (tmp_path / "project").mkdir()
    done = _run("init", "--dry-run", "--workspace", str(tmp_path / "project"), home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "https://mcp.example/mcp  (over the network)" in done.stdout


def name_of(requirement: str) -> str:
    return Requirement(requirement).name


def test_a_report_of_the_audit_log_needs_no_extra(tmp_path: Path) -> None:
    done = _run("report", home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no call was recorded yet" in done.stderr


def test_a_store_on_postgresql_names_its_own_extra(tmp_path: Path) -> None:
    url = "postgresql://user@localhost/store"
    _configure(tmp_path, auto_confirm={"enabled": True, "store": {"url": url}})
    done = _run("metrics", home=tmp_path, absent=frozenset({"psycopg"}))
    assert done.returncode == 2
    assert "needs psycopg, which is not installed" in done.stderr
    assert "pip install 'ironcurtain-proxy[postgres]'" in done.stderr


def test_a_person_answers_from_the_database_without_the_extra_of_the_page(tmp_path: Path) -> None:
    absent = ABSENT - {*MODULES["fleet"], *MODULES["postgres"]}
    url = "postgresql://nobody@127.0.0.1:1/none"
    done = _run("pending", "--database", url, home=tmp_path, absent=absent)
    assert done.returncode == 2
    assert done.stderr.startswith(f"ironcurtain-proxy: {url}: connection failed"), done.stderr


def test_a_model_on_the_command_line_names_the_extra_it_lacks(tmp_path: Path) -> None:
    done = _run("auto-approve", "eval", "--model", "openai:gpt", home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.endswith(f" -m {LLM}\n")


def test_the_target_check_alone_is_measured_without_an_extra(tmp_path: Path) -> None:
    done = _run("auto-approve", "eval", "--json", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert orjson.loads(done.stdout)["model"] is None


SETTINGS: Mapping[str, tuple[dict[str, object], str]] = table(
    "config/extras.settings", dict[str, tuple[dict[str, object], str]]
)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_that_needs_an_extra_is_found_by_every_command_that_reads_it(
    setting: str, tmp_path: Path
) -> None:
    sections, remedy = SETTINGS[setting]
    _configure(tmp_path, **sections)
    absent = ABSENT if setting == "engine" else ABSENT - {"sqlalchemy"}
    codes = {"serve": 2, "check": 1, "doctor": 1, "status": 0}
    done = _run(*codes, home=tmp_path, code=EACH, absent=absent)
    assert done.returncode == 0, done.stderr
    said = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert {command: code for command, code, _ in said} == codes
    for command, _, words in said:
        assert remedy in words, (command, words)


@pytest.mark.parametrize(("command", "code"), [("serve", 0), ("check", 0), ("status", 0)])
def test_the_proxy_starts_without_the_llm_approver_and_says_so(
    command: str, code: int, tmp_path: Path
) -> None:
    _configure(tmp_path, autoApprove={"enabled": True})
    done = _run(command, home=tmp_path)
    said = done.stdout + done.stderr
    assert said.count(LLM) == 1, said
    assert "autoApprove needs litellm" in said
    assert done.returncode == code, said


def test_doctor_says_what_installs_the_llm_approver(tmp_path: Path) -> None:
    _configure(tmp_path, autoApprove={"enabled": True})
    done = _run("doctor", "--json", home=tmp_path)
    found = [check for check in orjson.loads(done.stdout) if check["name"] == "packages"]
    assert [(check["state"], check["remedy"]) for check in found] == [
        ("warn", f"{sys.executable} -m {LLM}")
    ]


def test_all_modules_but_those_of_the_extras_can_be_imported_from_the_base(tmp_path: Path) -> None:
    program = "import importlib\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
    done = _run(*_base_modules(), home=tmp_path, code=program)
    assert done.returncode == 0, done.stderr[-2000:]


def _base_modules() -> Iterator[str]:
    above_the_extras = (
        *("auto_confirm.store", "llm.http", "telemetry"),
        *("bundle.repository", "bundle.update", "fleet."),
        "__main__",
    )
    first = {
        *("wiring.auto_confirm", "auto_confirm.engine_memory", "auto_confirm.engine_knowledge")
    }
    for module in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(module.relative_to(PACKAGE).with_suffix("").parts)
        name = name.removesuffix(".__init__")
        if not name.startswith(above_the_extras) and name not in first:
            yield f"ironcurtain_proxy.{name}".removesuffix(".__init__")


def _declared(requirements: list[str]) -> set[str]:
    ends = str.maketrans(dict.fromkeys("<>=[;", " "))
    return {text.translate(ends).split()[0].lower().replace("_", "-") for text in requirements}


def _imported() -> Iterator[tuple[Path, str]]:
    for module, node in nodes(ast.Import):
        yield from ((module, alias.name.partition(".")[0]) for alias in node.names)
    for module, origin in nodes(ast.ImportFrom):
        if origin.module is not None:
            yield module, origin.module.partition(".")[0]


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Return what has installed each module, for which every package is looked through."""
    return packages_distributions()


@one_worker
def test_every_library_that_is_imported_is_declared() -> None:
    extras = PROJECT["optional-dependencies"].values()
    declared = _declared([*PROJECT["dependencies"], *(text for extra in extras for text in extra)])
    known = _distributions()
    own = sys.stdlib_module_names | {"ironcurtain_proxy", "mcp_types"}
    undeclared = {
        (str(module.relative_to(ROOT)), name)
        for module, name in _imported()
        if name not in own
        and not {each.lower().replace("_", "-") for each in known.get(name, [name])} & declared
    }
    assert undeclared == set()


@one_worker
def test_the_extras_install_the_modules_that_are_looked_for() -> None:
    known = _distributions()
    for extra, names in MODULES.items():
        own = PROJECT["optional-dependencies"]
        found = _declared(own[extra])
        if "ironcurtain-proxy" in found:
            found |= _declared(own["engine"])
        for name in names:
            brought_by = {one.lower() for one in known[name.partition(".")[0]]}
            assert brought_by & found, (extra, name)

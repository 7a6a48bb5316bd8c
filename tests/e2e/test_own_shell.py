"""Our own shell: each command in a view of its own, decided by the same kernel as other servers.

With the real sandbox, through the whole proxy.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.sandbox.private_tmp import CACHES
from tests.e2e.confined_installation import PATH, done, escalations, known_sandbox, refused
from tests.e2e.installation import ROOT, Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.process_tree import descendants
from tests.e2e.raw_client import Message, RawClient, texts
from tests.e2e.test_sandbox_kernel import OF_THE_KERNEL
from tests.e2e.website import Website
from tests.program import wait_until

pytestmark = pytest.mark.usefixtures("sandbox")

PROGRAM: Final = [sys.executable, "-m", "ironcurtain_proxy"]


def shelled(installation: Installation, path: str = PATH, /, **config: Json) -> RawClient:
    """A proxy before our own shell; every call is escalated."""
    installation.servers["shell"] = {"builtin": "shell"}
    installation.rules = [
        rule(
            "files", "allow", paths={"roles": ["read-path", "write-path"], "within": "@workspace"}
        ),
        rule("commands", "allow", server=["own-shell"]),
    ]
    installation.variables |= {"PATH": path, "PYTHONPATH": str(ROOT)}
    installation.command = PROGRAM
    installation.known_sandbox = known_sandbox()
    state = installation.home / ".ironcurtain"
    state.mkdir(exist_ok=True)
    document: dict[str, Json] = {
        "containment": {"undo": True},
        "security": {"interceptor": {"approvalPolicy": "dangerous"}},
        **config,
    }
    (state / "config.json").write_bytes(orjson.dumps(document))
    return installation.start()


def run(agent: RawClient, command: str, **more: Json) -> Message:
    return agent.call("run_command", {"command": command, **more})


def last(installation: Installation) -> Message:
    return installation.outcomes()[-1]


def views_of(installation: Installation) -> list[Path]:
    return list((installation.home / ".ironcurtain/views").glob("*/*/upper"))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, RawClient]]:
    installation = Installation(tmp_path_factory.mktemp("own-shell"))
    sub = installation.workspace / "sub"
    for place in (installation.workspace, sub):
        subprocess.run(["git", "init", "-q", str(place)], check=True)
    subprocess.run(["git", "-C", str(sub), "config", "core.hooksPath", "../shared"], check=True)
    (sub / ".vscode").symlink_to("../editor")
    (sub / ".mcp.json").write_text('{"mcpServers": {"a": {"args": ["tools/server"]}}}')
    (sub / "tools").mkdir()
    (sub / "tools/server").write_text("serve")
    (installation.home / ".gitconfig").write_text("[core]\n\thooksPath = everywhere\n")
    (installation.home / ".ssh").mkdir()
    (installation.home / ".ssh/id").write_text("a key")
    yield installation, shelled(installation)
    installation.end()


def test_a_command_runs_unasked_and_comes_back_byte_for_byte_with_its_caches(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    here = installation.workspace
    python = here / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("an interpreter")
    python.chmod(0o755)
    (here / "kept.txt").write_text("kept")
    said = done(run(agent, "echo evil > .venv/bin/python; rm kept.txt; echo new > made; echo ok"))
    assert said == "ok"
    assert (python.read_text(), (here / "kept.txt").exists()) == ("evil\n", False)
    record = last(installation)
    assert (record["decidedBy"], record["sandboxed"]) == ("containment", True)
    assert record["changed"] == ["changed .venv/bin/python", "deleted kept.txt", "created made"]
    taken_back = Person(installation).run("rollback", str(record["requestId"]))
    assert taken_back.returncode == 0, taken_back.stderr
    assert (python.read_text(), python.stat().st_mode & 0o777) == ("an interpreter", 0o755)
    assert ((here / "kept.txt").read_text(), (here / "made").exists()) == ("kept", False)


def test_a_command_that_changed_nothing_has_no_point(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    assert done(run(agent, "make --version > /dev/null; true")) == "[no output]"
    record = last(installation)
    assert "point" not in record
    assert "changed" not in record


def test_package_managers_find_a_place_for_what_they_keep_and_share_no_file_with_the_workspace(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    places = " ".join(f'"${name}"' for name in sorted(CACHES))
    command = f"for p in {places}; do mkdir -p $p && echo x > $p/f || exit 1; ln $p/f .; done"
    assert done(run(agent, f"{command}; echo $UV_LINK_MODE")).count("cross-device") == len(CACHES)
    assert "changed" not in last(installation)
    assert done(run(agent, "cat $UV_CACHE_DIR/f $pnpm_config_store_dir/f")) == "x\nx"


def test_what_package_managers_keep_does_not_end_containment(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    many = "import os; [os.link('x', str(n)) for n in range(20001)]"
    done(run(agent, f'mkdir -p $GOCACHE/a; cd $GOCACHE/a; touch x; python3 -c "{many}"'))
    done(run(agent, "echo more > /tmp/more"))
    assert last(installation)["decidedBy"] == "containment"


def test_git_tidies_up_neither_beside_a_command_nor_after_it_and_leaves_no_lock(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    place = installation.workspace / "tidy"
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    subprocess.run(["git", "-C", str(place), "config", "gc.auto", "1"], check=True)
    name = "-c user.name=a -c user.email=a@b.example"
    command = f"cd tidy; seq 800 | split -l 1; git add -A; GIT_TRACE=1 git {name} commit -q -m a"
    said = done(run(agent, f"{command} 2>&1"))
    assert "trace" in said
    assert "maintenance" not in said
    assert [*place.glob(".git/**/*.lock"), *place.glob(".git/**/gc.pid")] == []


def test_a_file_that_nobody_may_replace_is_named_and_nothing_comes_in(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    frozen = installation.workspace / "frozen\n.txt"
    frozen.write_text("old")
    if subprocess.run(["chattr", "+a", str(frozen)], check=False, capture_output=True).returncode:
        pytest.skip("no file can be made append-only here")
    try:
        said = refused(
            run(agent, 'echo new > beside.txt; for f in frozen*; do echo new >> "$f"; done')
        )
    finally:
        subprocess.run(["chattr", "-a", str(frozen)], check=True)
    assert "NOTHING WAS CHANGED" in said
    assert "frozen\\n.txt: operation not permitted" in said
    assert frozen.read_text() == "old"


def test_the_restrictions_of_a_command_are_those_of_other_servers(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    probes = {
        f"cat {installation.home}/.ssh/id": "No such file",
        f"ls {installation.home}/.ironcurtain/views": "No such file",
        f"touch {installation.home}/x": "Read-only file system",
        "touch /etc/x": "Read-only file system",
        "unshare -U true": "Operation not permitted",
        "mount -t tmpfs x /mnt": "mount: /mnt",
        f"{sys.executable} -c 'import socket; socket.socket(socket.AF_UNIX)'": "not permitted",
        f"{sys.executable} -c 'import socket; socket.socket(socket.AF_VSOCK)'": "not permitted",
        f"{sys.executable} -c 'import socket; socket.socketpair(type=socket.SOCK_DGRAM)'": "ermi",
        f"{sys.executable} -c 'import os; os.chmod(\"{installation.workspace}\", 0o4755)'": "ermi",
        f"""{sys.executable} -c 'import ctypes; libc = ctypes.CDLL(None, use_errno=True)
for number in {[*OF_THE_KERNEL.values()]}: libc.syscall(number, 10); print(ctypes.get_errno())'
""": "\n".join(["38"] * len(OF_THE_KERNEL)),
        "echo 1 > /proc/sys/kernel/core_pattern": "cannot create",
        "kill -9 1; echo alive": "alive",
        "ls /proc | grep -c '^[0-9]'": "",
        # Nothing is inherited: input, output, errors, and the directory that `ls` lists.
        "ls -l /proc/self/fd | grep -c 'ns:\\|bpf\\|/views'": "0",
        "ls /proc/self/fd | tail -1": "3",
    }
    for probe, expected in probes.items():
        (installation.workspace / "probe.sh").write_text(probe)
        said = "\n".join(texts(run(agent, "sh probe.sh")))
        assert expected.lower() in said.lower(), (probe, said)
    assert last(installation)["decidedBy"] == "containment"


def test_control_places_are_kept_back_told_recorded_and_asked_about(
    installation: Installation,
) -> None:
    escalations(installation)
    agent, person = shelled(installation), Person(installation)
    here = installation.workspace
    subprocess.run(["git", "init", "-q", str(here)], check=True)
    command = "echo id > .git/hooks/pre-commit; mkdir .claude; echo {} > .claude/settings.json"
    command += "; ln -s /etc .zed"
    said = done(run(agent, f"{command}; echo data > data"))
    assert "KEPT BACK" in said
    assert ".git/hooks/pre-commit" in said
    record = last(installation)
    assert record["decidedBy"] == "containment"
    assert str(record["keptBack"]).count("(") == 3
    assert not (here / ".git/hooks/pre-commit").exists()
    assert not (here / ".claude").exists()
    assert (here / "data").exists()
    call = agent.start_call("run_command", {"command": f"{command}; echo data > data"})
    question = person.until_asked()[0]
    context = str(question["context"])
    for named in (".claude' (", "it holds 'settings.json'", ".git/hooks/pre-commit", "to '/etc'"):
        assert named in context
    person.answer({"decision": "approved"})
    done(agent.result(call))
    assert (here / ".claude/settings.json").read_text() == "{}\n"
    assert (here / ".git/hooks/pre-commit").exists()
    # Only these: another control place of the same command would have been kept back again.
    (here / "more.sh").write_text("echo x > .envrc")
    assert "KEPT BACK" in done(run(agent, "sh more.sh"))
    (here / "raw.sh").write_bytes(b"echo > .n\xff")
    assert "KEPT BACK" in done(run(agent, "sh raw.sh"))
    assert "not UTF-8" in refused(run(agent, "sh raw.sh"))


def test_one_approval_is_enough_for_the_control_place_that_a_command_names(
    installation: Installation,
) -> None:
    escalations(installation)
    here = installation.workspace
    (here / ".envrc").write_text("old\n")
    agent, person = shelled(installation), Person(installation)
    for command, left in {
        "cat .envrc; echo new >> .envrc; echo x > .mcp.json.d": "old\nnew\n",
        "sed -i s/old/new/ .envrc": "new\n",
        "cat .envrc; printf 'new\\n' | tee .envrc; bash -c 'echo x > .exrc'": "new\n",
    }.items():
        (here / ".envrc").write_text("old\n")
        call = agent.start_call("run_command", {"command": command})
        assert f"write {here}/.envrc" in str(person.until_asked()[0]["context"])
        person.answer({"decision": "approved"})
        said = done(agent.result(call))
        assert (here / ".envrc").read_text() == left
        assert "'.envrc'" not in said
        assert not any((here / one).exists() for one in (".mcp.json.d", ".exrc"))
    (here / ".vscode").mkdir()
    # Of what is read, and of directories, nobody has seen what is to be written.
    command = "cat .envrc; rm -rf .vscode; mkdir .claude; cp x .git"
    call = agent.start_call("run_command", {"command": command})
    assert "write" not in str(person.until_asked()[0]["context"])
    person.answer({"decision": "denied"})
    refused(agent.result(call))


def test_an_approval_opens_what_its_question_names_and_no_more(
    installation: Installation,
) -> None:
    escalations(installation)
    agent, person = shelled(installation), Person(installation)
    here = installation.workspace
    subprocess.run(["git", "init", "-q", str(here)], check=True)
    command = "seq -f .u%g 1200 | xargs touch; echo id > .git/hooks/pre-push"
    assert "'.git/hooks/pre-push'" in done(run(agent, command))
    assert str(last(installation)["keptBack"]).count("(") == 51
    call = agent.start_call("run_command", {"command": command})
    question = person.until_asked()[0]
    context = str(question["context"])
    assert "'.git/hooks/pre-push' (" in context
    assert "1,151 more (a new hidden name" in context
    person.answer({"decision": "approved"})
    done(agent.result(call))
    assert (here / ".git/hooks/pre-push").exists()
    assert len([*here.glob(".u*")]) == 49


def test_what_settings_elsewhere_lead_to_and_links_out_of_sight_are_kept_back(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    here = installation.workspace
    (here / "leave.sh").write_text(
        "mkdir shared editor; echo id > shared/pre-commit; echo x > editor/tasks.json\n"
        "git init -q new; mkdir new/everywhere; echo id > new/everywhere/pre-commit\n"
        "git init -q /tmp/r\n"
        "ln -s $(grep ' /tmp ' /proc/self/mountinfo | tail -n 1 | cut -d ' ' -f 4)/r link\n"
        "ln -s /dev/fd/../../1/root/tmp/r magic; ln -s sub plain; echo x > data\n"
        "echo x > sub/tools/server\n"
    )
    assert "KEPT BACK" in done(run(agent, "sh leave.sh"))
    kept = [str(one).partition(" (")[0] for one in last(installation)["keptBack"]]  # type: ignore[union-attr]
    assert kept == ["editor", "link", "magic", "new/everywhere", "shared", "sub/tools/server"]
    assert (here / kept.pop()).read_text() == "serve"
    assert not any(os.path.lexists(here / one) for one in kept)
    assert ((here / "data").exists(), (here / "plain").is_symlink()) == (True, True)


@pytest.mark.parametrize(
    ("bounds", "script"),
    [
        ({"max_files": 300}, "mkdir m; cd m; seq 400 | xargs touch"),
        (
            {"max_bytes": 1 << 20},
            "mkdir m; for i in 1 2 3 4 5 6; do head -c 200000 /dev/urandom > m/$i; done",
        ),
    ],
)
def test_a_call_that_makes_itself_impossible_to_take_back_leaves_nothing(
    installation: Installation, bounds: dict[str, Json], script: str
) -> None:
    agent, here = (
        shelled(installation, containment={"undo": True, **bounds}),
        installation.workspace,
    )
    (here / "kept").write_text("mine")
    (here / "more.sh").write_text(f"echo evil > kept; rm -f more.sh; {script}")
    assert "NOTHING WAS CHANGED" in refused(run(agent, "sh more.sh"))
    assert ((here / "kept").read_text(), sorted(one.name for one in here.iterdir())) == (
        "mine",
        ["kept", "more.sh"],
    )
    assert last(installation)["decidedBy"] == "containment"
    (here / "more.sh").write_text("echo again > kept")
    # The identical call would be asked about.
    done(run(agent, "sh ./more.sh"))
    taken_back = Person(installation).run("rollback", str(last(installation)["requestId"]))
    assert (taken_back.returncode, (here / "kept").read_text()) == (0, "mine"), taken_back.stderr


def test_what_is_denied_or_withdrawn_leaves_nothing(installation: Installation) -> None:
    agent, here = shelled(installation), installation.workspace
    refused(run(agent, "curl https://closed.example/x; touch denied"))
    assert list(here.iterdir()) == []
    started = agent.start_call("run_command", {"command": "touch begun; sleep 600"})
    wait_until(lambda: any((one / "begun").exists() for one in views_of(installation)))
    agent.notify("notifications/cancelled", {"requestId": started})
    assert "ended" in refused(run(agent, "touch late; sleep 600", timeoutSeconds=1))
    assert sorted(one.name for one in here.iterdir()) == ["late"]
    wait_until(lambda: len(views_of(installation)) <= 1)


def test_a_job_goes_on_and_its_changes_come_in_when_it_ends(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    here = installation.workspace
    server = f"{sys.executable} -m http.server 8734 --bind 127.0.0.1"
    said = done(run(agent, f"echo begun > job.txt; {server}", background=True))
    assert "is running" in said
    number = int(said.split("[job ")[1].split()[0])
    code = "import urllib.request as u; o = u.build_opener(u.ProxyHandler({}))"
    fetch = f"{code}; print(o.open('http://127.0.0.1:8734/job.txt').read())"
    # The network of all commands is one, and leads nowhere else.
    until = f'until {sys.executable} -c "{fetch}" 2> /dev/null; do sleep 0.1; done'
    assert "begun" in done(run(agent, until))
    assert not (here / "job.txt").exists()
    assert "is running" in done(agent.call("job_status", {"job": number}))
    agent.call("stop_job", {"job": number})
    assert (here / "job.txt").read_text() == "begun\n"
    with pytest.raises(AssertionError, match="there is no job"):
        agent.call("job_status", {"job": number})


def test_what_a_job_changed_is_judged_when_it_comes_in(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    git = ["git", "-C", str(installation.workspace)]
    waits = "until [ -e $TMPDIR/now ]; do sleep 0.05; done"
    begun = done(run(agent, f"mkdir late; echo x > late/pre-commit; {waits}", background=True))
    assert "job" in begun
    done(run(agent, "touch $TMPDIR/now"))
    # Its own processes alone: words of another test's command may be the same.
    proxy = agent.process.pid
    wait_until(lambda: not any(b"$TMPDIR/now" in words(one) for one in descendants(proxy)))
    subprocess.run([*git, "config", "core.hooksPath", "late"], check=True)
    number = int(begun.rpartition("[job ")[2].split()[0])
    said = texts(agent.call("job_status", {"job": number, "waitSeconds": 60}))
    assert "KEPT BACK" in str(said)
    assert not (installation.workspace / "late").exists()
    subprocess.run([*git, "config", "--unset", "core.hooksPath"], check=True)


def words(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_killed_proxy_leaves_nothing_of_a_command(installation: Installation) -> None:
    agent, here = shelled(installation), installation.workspace
    agent.start_call("run_command", {"command": "touch begun; sleep 600"})
    wait_until(lambda: any((one / "begun").exists() for one in views_of(installation)))
    agent.process.kill()
    agent.process.wait()
    assert list(here.iterdir()) == []
    agent = shelled(installation)
    done(run(agent, "touch after"))
    assert [one.name for one in here.iterdir()] == ["after"]
    assert len(list((installation.home / ".ironcurtain/views").iterdir())) == 1


def test_a_host_that_polls_git_runs_nothing_and_sees_no_command_half_done(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    here, ran = installation.workspace, installation.root / "ran"
    evil = f"printf '[core]\\n\\tfsmonitor = touch {ran}\\n'"
    script = f"""
        {evil} >> .git/config; git init -q lib; {evil} >> lib/.git/config
        printf '#!/bin/sh\\ntouch {ran}' > lib/.git/hooks/post-checkout; chmod +x lib/.git/hooks/*
        (sleep 1; {evil} >> lib/.git/config) & sleep 0.5
    """
    poll = "while :; do git status; git -C lib status; git -C lib checkout; sleep 0.05; done"
    host = subprocess.Popen(
        ["/bin/sh", "-c", poll],
        cwd=here,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(installation.home)},
    )
    try:
        for _ in range(3):
            run(agent, script)
    finally:
        host.kill()
        host.wait()
    subprocess.run(["git", "-C", str(here), "status"], check=True, capture_output=True)
    assert not ran.exists()


def test_what_an_approval_showed_is_all_that_a_command_reaches_and_changes_and_runs_outside(
    installation: Installation, website: Website
) -> None:
    escalations(installation)
    here, ran = installation.workspace, installation.home / "ran"
    (here / "bin").mkdir()
    for name in ("bwrap", "node", "socat", "rg", "python3"):
        # A project's own directory may stand on the PATH, and earlier commands may write there.
        (here / "bin" / name).write_text(f"#!/bin/sh\ntouch {ran}\necho planted\nexit 1\n")
        (here / "bin" / name).chmod(0o755)
    agent, person = shelled(installation, f"{here}/bin:{PATH}"), Person(installation)
    url = website.url.replace("localhost", "localhost.")
    code = f'import urllib.request as u; print(u.urlopen("{url}").status)'
    (here / "fetch.sh").write_text(
        f"{sys.executable} -c '{code}' > got; curl -sS -m 5 http://other.example/ > other\n"
        "python3; exit 1"
    )
    said = refused(run(agent, "sh fetch.sh"))
    assert "host localhost" in said
    assert "planted" in said  # inside, the whole PATH counts
    (here / "got").unlink()
    (here / "other").unlink()
    call = agent.start_call("run_command", {"command": "sh fetch.sh"})
    assert "localhost" in str(person.until_asked()[0]["context"])
    person.answer({"decision": "approved"})
    said = refused(agent.result(call))
    assert "KEPT BACK" not in said
    assert "planted" in said
    assert not ran.exists()
    assert (here / "got").read_text() == "200\n"
    assert "allowlist" in (here / "other").read_text()
    assert "host localhost" in str(last(installation)["opened"])
    assert sorted(one.name for one in here.iterdir()) == ["bin", "fetch.sh", "got", "other"]


def test_a_credential_that_appears_while_a_job_runs_is_closed_to_the_job_and_to_commands(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    file = installation.home / ".pgpass"
    (installation.workspace / "late.sh").write_text(f"cat {file}")
    waits = "until [ -e $TMPDIR/go ]; do sleep 0.05; done; sh late.sh; echo ended"
    begun = done(run(agent, f"echo begun; {waits}", background=True))
    assert "job" in begun
    number = int(begun.rpartition("[job ")[2].split()[0])
    for word in ("one", "two"):
        beside = file.with_name("beside.new")
        beside.write_text("the canary sings")
        # As programs save: what lies over the old file goes with it.
        beside.rename(file)
        answer = done(run(agent, f"sh late.sh; echo {word}"))
        assert word in answer
        assert "canary" not in answer
        assert last(installation)["decidedBy"] == "containment"
    done(run(agent, "touch $TMPDIR/go"))
    said = texts(agent.call("job_status", {"job": number, "waitSeconds": 60}))
    assert "ended" in str(said)
    assert "canary" not in str(said)

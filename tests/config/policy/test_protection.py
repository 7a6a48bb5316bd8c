"""What is out of reach whatever a rule says."""

from pathlib import Path

import pytest

from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.reading.document import ProblemsError
from ironcurtain_proxy.config.reading.layers import real
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.decision import Deny
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, PathValue
from tests.config.files import policy as policy_document
from tests.config.files import write
from tests.tables import table


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path.resolve() / "home"
    (home / "work").mkdir(parents=True)
    return home


def load(home: Path, **variables: str) -> Policy:
    return load_policy(load_settings({"HOME": str(home), **variables})).policy


def is_protected(policy: Policy, path: Path, role: ArgumentRole = "read-path") -> bool:
    value = PathValue(str(path), real(path))
    request = AccessRequest(
        server="filesystem",
        tool="t",
        annotated=True,
        has_arguments=True,
        arguments=(ArgumentFact("path", (role,), (value,)),),
    )
    decision = authorize(request, policy)
    return isinstance(decision, Deny) and decision.ground.rule == "structural-protected-path"


@pytest.mark.requirement("C-20")
@pytest.mark.parametrize("name", table("config/protection.out_of_reach", list[str]))
def test_our_files_and_the_users_keys_are_out_of_reach(name: str, home: Path) -> None:
    write(home / "policy/compiled-policy.json", policy_document())
    write(home / "my.json", {})
    policy = load(
        home,
        ALLOWED_DIRECTORY="~/work",
        AUDIT_LOG_PATH="~/logs/audit.jsonl".replace("~", str(home)),
        SESSION_LOG_PATH=f"{home}/logs/session.log",
        ESCALATION_DIR=f"{home}/mail",
        GENERATED_DIR=f"{home}/policy",
        IRONCURTAIN_CONFIG=f"{home}/my.json",
        PROTECTED_PATHS='["~/secret"]',
    )
    assert is_protected(policy, home / name)
    assert is_protected(policy, home / name, "write-path")
    assert not is_protected(policy, home / "work/a.txt")
    assert not is_protected(policy, home / "logs/other.log")


@pytest.mark.parametrize("name", table("config/protection.steering", list[str]))
def test_what_steers_git_or_a_client_is_not_changed_anywhere(name: str, home: Path) -> None:
    """G8: the agent could write the remote that git pushes to."""
    policy = load(home, ALLOWED_DIRECTORY=str(home / "work"))
    for directory in (home / "work", home / "elsewhere"):
        assert is_protected(policy, directory / name, "write-path")
        assert is_protected(policy, directory / name, "delete-path")
        assert not is_protected(policy, directory / name, "read-path")


def test_our_code_can_be_read_but_not_changed(home: Path) -> None:
    import ironcurtain_proxy  # noqa: PLC0415  only its place matters

    policy = load(home)
    code = Path(ironcurtain_proxy.__file__).parent / "decision/authorizer.py"
    assert is_protected(policy, code, "write-path")
    assert not is_protected(policy, code)


def test_the_workspace_is_exempt_from_what_holds_it_and_from_nothing_inside_it(home: Path) -> None:
    """As the original lays its sessions out: the workspace inside the state directory."""
    session = home / ".ironcurtain/sessions/s"
    (session / "sandbox").mkdir(parents=True)
    policy = load(
        home,
        ALLOWED_DIRECTORY=str(session / "sandbox"),
        ESCALATION_DIR=str(session / "sandbox/mail"),
        AUDIT_LOG_PATH=str(session / "sandbox/audit.jsonl"),
    )
    assert not is_protected(policy, session / "sandbox/a.txt", "write-path")
    assert is_protected(policy, session / "sandbox/mail/response-1.json", "write-path")
    assert is_protected(policy, session / "sandbox/audit.jsonl", "write-path")
    assert is_protected(policy, session / "other.json")


@pytest.mark.parametrize(
    "variables",
    [
        {"ALLOWED_DIRECTORY": "~/.ssh"},
        {"ALLOWED_DIRECTORY": "~/.ironcurtain"},
        {"ALLOWED_DIRECTORY": "~/work", "ESCALATION_DIR": "~/work"},
        {"ALLOWED_DIRECTORY": "~/work", "PROTECTED_PATHS": '["~/work"]'},
    ],
    ids=str,
)
def test_a_workspace_that_is_itself_protected_is_refused(
    variables: dict[str, str], home: Path
) -> None:
    for name in (".ssh", ".ironcurtain"):
        (home / name).mkdir()
    with pytest.raises(ProblemsError, match="name another directory as workspace"):
        load(home, **variables)


def test_a_policy_that_lies_in_the_workspace_is_protected_there(home: Path) -> None:
    write(home / "work/compiled-policy.json", policy_document())
    policy = load(home, ALLOWED_DIRECTORY="~/work", GENERATED_DIR="~/work")
    assert is_protected(policy, home / "work/compiled-policy.json", "write-path")
    assert is_protected(policy, home / "work/dynamic-lists.json", "write-path")
    assert not is_protected(policy, home / "work/other.json", "write-path")


def test_a_project_layer_is_protected_by_its_path_only_where_it_exists(home: Path) -> None:
    """A sandbox would leave an empty file in the workspace for each path that does not exist."""
    layer = home / "work/.ironcurtain"
    layer.mkdir()
    (layer / "policy.yaml").write_text("deny filesystem: delete_file\n")
    policy = load(home, ALLOWED_DIRECTORY="~/work")
    inside = [one.path for one in policy.protected_paths if one.path.is_within(real(layer))]
    assert inside == [real(layer / "policy.yaml")]
    for name in ("policy.yaml", "compiled-policy.json", "dynamic-lists.json"):
        assert is_protected(policy, layer / name, "write-path")


def test_a_link_is_protected_with_what_it_leads_to(home: Path) -> None:
    (home / "vault").mkdir()
    (home / ".ssh").symlink_to("vault")
    policy = load(home)
    assert is_protected(policy, home / ".ssh/id_rsa")
    assert is_protected(policy, home / "vault/id_rsa")
    assert str(home / ".ssh") in {str(p.path) for p in policy.protected_paths}


def test_a_protected_root_leaves_only_the_workspace(home: Path) -> None:
    """G22."""
    policy = load(home, ALLOWED_DIRECTORY="~/work", PROTECTED_PATHS='["/"]')
    assert is_protected(policy, Path("/etc/hosts"))
    assert not is_protected(policy, home / "work/a.txt")


def test_git_in_a_workspace_without_a_layer_of_its_own_is_not_asked_about(home: Path) -> None:
    work = home / "work"
    policy = load(home, ALLOWED_DIRECTORY=str(work))
    inside = [one.path for one in policy.protected_paths if one.path.is_within(real(work))]
    assert inside == []
    assert is_protected(policy, work / ".ironcurtain/policy.yaml", "write-path")

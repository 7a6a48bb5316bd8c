"""The administrator's layer: what it decides holds, and nobody else can write it."""

import os
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.config.policy import policy_files
from ironcurtain_proxy.config.policy.managed import KEPT, MANAGED, find_managed
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.reading.document import ProblemsError, Report
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.model.decision import SEVERITY, Effect, effect_of
from ironcurtain_proxy.model.request import AccessRequest


class Machine:
    """A machine with an administrator, a user and a project."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.managed, self.work = place / "managed", place / "home/work"
        self.state = place / "home/.ironcurtain"
        for one in (self.managed, self.work, self.state):
            one.mkdir(parents=True)
        self.managed.chmod(0o755)
        own = partial(find_managed, directory=self.managed, owner=os.geteuid())
        monkeypatch.setattr(policy_files, "find_managed", own)
        self.variables = {
            "HOME": str(self.state.parent),
            "ALLOWED_DIRECTORY": str(self.work),
            "SANDBOX_POLICY": "enforce",
        }

    def decide(self, tool: str, **variables: str) -> tuple[Effect, str, str]:
        loaded = load_policy(load_settings({**self.variables, **variables}))
        request = AccessRequest(
            server="time", tool=tool, annotated=True, has_arguments=False, arguments=()
        )
        decision = authorize(request, loaded.policy)
        return effect_of(decision), decision.ground.rule, decision.ground.reason


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path.resolve(), monkeypatch)


def test_the_path_of_the_layer_is_fixed_and_most_machines_have_none() -> None:
    assert Path("/etc/ironcurtain/managed") == MANAGED
    report = Report()
    assert find_managed(report, Path("/etc/no-such-directory/managed")) is None
    assert not report.has_errors


def test_what_the_administrator_denies_or_asks_about_no_layer_opens(machine: Machine) -> None:
    (machine.state / "policy.yaml").write_text('allow time: "*"\n')
    assert machine.decide("convert_time")[0] == "allow"
    (machine.managed / "policy.yaml").write_text(
        "deny time: {tools: convert_time, reason: Not here}\nask time: get_current_time\n"
        "allow fetch: fetch\n"
    )
    denied, rule, reason = machine.decide("convert_time")
    assert (denied, rule) == ("deny", "managed:deny-time-convert_time")
    assert reason == "The administrator of this machine says: Not here"
    assert machine.decide("get_current_time")[0] == "escalate"
    loaded = load_policy(load_settings(machine.variables))
    assert [str(one) for one in loaded.warnings if "the administrator's layer may only" in str(one)]


def test_a_directory_that_stands_alone_does_not_leave_the_administrator_out(
    machine: Machine,
) -> None:
    (machine.managed / "policy.yaml").write_text("deny time: '*'\n")
    alone = machine.state / "alone"
    alone.mkdir()
    (alone / "policy.yaml").write_text('base: none\nallow time: "*"\n')
    assert machine.decide("convert_time", GENERATED_DIR=str(alone))[0] == "deny"


def test_another_layer_of_the_administrator_is_another_policy(machine: Machine) -> None:
    versions = []
    for content in ("deny time: '*'\n", "ask time: '*'\n"):
        (machine.managed / "policy.yaml").write_text(content)
        versions.append(load_policy(load_settings(machine.variables)).version)
    (machine.managed / "managed.json").write_text('{"keep": ["pins"]}')
    versions.append(load_policy(load_settings(machine.variables)).version)
    assert len(set(versions)) == 3


_TOOLS = ("get_current_time", "convert_time")
_VERBS: dict[str, Effect] = {"allow": "allow", "ask": "escalate", "deny": "deny"}
_LAYER = st.dictionaries(st.sampled_from(_TOOLS), st.sampled_from([*_VERBS]), min_size=1)


def _text(layer: dict[str, str]) -> str:
    named = {verb: [tool for tool in layer if layer[tool] == verb] for verb in _VERBS}
    return "\n".join(f"{verb} time: [{', '.join(tools)}]" for verb, tools in named.items() if tools)


@given(managed=_LAYER, user=_LAYER, project=_LAYER, tool=st.sampled_from(_TOOLS))
def test_no_answer_is_milder_than_the_administrators_alone(
    tmp_path_factory: pytest.TempPathFactory,
    managed: dict[str, str],
    user: dict[str, str],
    project: dict[str, str],
    tool: str,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(tmp_path_factory.mktemp("machine").resolve(), patch)
        (machine.managed / "policy.yaml").write_text(_text(managed))
        (machine.state / "policy.yaml").write_text(_text(user))
        (machine.work / ".ironcurtain").mkdir()
        (machine.work / ".ironcurtain/policy.yaml").write_text(_text(project))
        alone = _VERBS[managed.get(tool, "allow")]
        assert SEVERITY[machine.decide(tool)[0]] >= SEVERITY[alone]


_OFF = {
    "sandbox": {"SANDBOX_POLICY": "warn"},
    "containment": {},
    "pins": {"PINS": "off"},
    "redaction": {"AUDIT_REDACTION": "false"},
    "approvals": {},
}


@pytest.mark.parametrize("kept", [one for one in KEPT if one != "hooks"])
def test_a_kept_setting_that_is_switched_off_stops_the_start(machine: Machine, kept: str) -> None:
    config = (
        '{"security": {"interceptor": {"approvalPolicy": "none"}}}' if kept == "approvals" else "{}"
    )
    (machine.state / "config.json").write_text(config)
    (machine.managed / "managed.json").write_text(f'{{"keep": ["{kept}"]}}')
    with pytest.raises(ProblemsError, match=r"managed\.json does not let .* be switched off here"):
        machine.decide("convert_time", **_OFF[kept])
    (machine.state / "config.json").write_text('{"containment": {"undo": true}}')
    assert machine.decide("convert_time")[0] == "allow"


@pytest.mark.parametrize(
    "text", ["{", '{"keep": "pins"}', '{"keep": ["pin"]}', '{"kept": []}', "[]"]
)
def test_what_the_administrator_mistyped_stops_the_start(machine: Machine, text: str) -> None:
    (machine.managed / "managed.json").write_text(text)
    with pytest.raises(ProblemsError, match=r"managed\.json"):
        machine.decide("convert_time")


def test_a_layer_that_others_can_write_stops_the_start(machine: Machine) -> None:
    file = machine.managed / "policy.yaml"
    file.write_text("deny time: '*'\n")
    for path, mode in ((file, 0o664), (machine.managed, 0o777), (machine.managed.parent, 0o775)):
        before = path.stat().st_mode
        path.chmod(mode)
        with pytest.raises(ProblemsError, match="can be changed by others than its administrator"):
            machine.decide("convert_time")
        path.chmod(before)
    assert machine.decide("convert_time")[0] == "deny"
    file.unlink()
    file.symlink_to(machine.state / "policy.yaml")
    with pytest.raises(ProblemsError, match="no link counts here"):
        machine.decide("convert_time")


def test_a_layer_of_another_owner_is_not_the_administrators(tmp_path: Path) -> None:
    place = tmp_path / "managed"
    place.mkdir()
    report = Report()
    # Root may always write, so that its files count as the administrator's.
    assert find_managed(report, place, owner=os.geteuid() + 1) is not None
    assert report.has_errors is (os.geteuid() != 0)

"""What asks besides the policy, as the operator says it."""

from pathlib import Path

import pytest

from ironcurtain_proxy.approval.capabilities import AUTONOMOUS, SUPERVISED
from ironcurtain_proxy.approval.overlay import InterceptorConfig, RatedTool, is_gate_on, why_asked
from ironcurtain_proxy.config.overlay_settings import GrantSettings, OverlaySettings
from ironcurtain_proxy.config.reading.document import ProblemsError
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.model.annotation import SafetyLevel, ToolDeclaration
from ironcurtain_proxy.model.operation import CompositeSpec, CompositeStep
from ironcurtain_proxy.model.values import Json
from tests.config.files import write
from tests.tables import table

SERVERS: Json = {"git": {"command": "x"}, "files": {"command": "y"}}


def load(tmp_path: Path, document: dict[str, Json], **environ: str) -> Settings:
    config = write(tmp_path / "settings.json", {"mcpServers": SERVERS, **document})
    return load_settings({"HOME": str(tmp_path), **environ}, config)


def overlay(tmp_path: Path, document: dict[str, Json], **environ: str) -> OverlaySettings:
    return load(tmp_path, document, **environ).overlay


def refusal(tmp_path: Path, document: dict[str, Json]) -> str:
    with pytest.raises(ProblemsError) as caught:
        load(tmp_path, document)
    return str(caught.value).removeprefix(f"{tmp_path}/settings.json: ")


def warnings(tmp_path: Path, document: dict[str, Json]) -> list[str]:
    source = f"{tmp_path}/settings.json: "
    return [str(warning).removeprefix(source) for warning in load(tmp_path, document).warnings]


def interceptor(tmp_path: Path, section: Json) -> InterceptorConfig:
    return overlay(tmp_path, {"security": {"interceptor": section}}).interceptor


@pytest.mark.requirement("E-5")
def test_without_a_file_dangerous_tools_are_asked_about_and_no_capability(tmp_path: Path) -> None:
    said = load_settings({"HOME": str(tmp_path)}).overlay
    assert said.interceptor.enabled is True
    assert said.interceptor.approval_policy == "dangerous"
    assert said == OverlaySettings()
    assert said.capabilities.profile is None
    assert said.grants == GrantSettings(
        ttl_seconds=0, persist=False, scope="session", expires_days=30
    )


@pytest.mark.requirement("E-20")
@pytest.mark.parametrize("mode", ["dangerous", "all", "configured"])
@pytest.mark.parametrize("required", [True, False])
def test_the_old_switch_no_longer_opens_or_closes_the_gate(
    tmp_path: Path, mode: str, required: bool
) -> None:
    said = interceptor(tmp_path, {"approvalPolicy": mode, "approvalRequired": required})
    assert said == InterceptorConfig(approval_policy=mode)
    assert is_gate_on(said)


@pytest.mark.parametrize("section", [{}, {"security": {}}, {"security": {"interceptor": {}}}])
def test_an_empty_section_is_the_default(tmp_path: Path, section: dict[str, Json]) -> None:
    assert overlay(tmp_path, section) == OverlaySettings()


@pytest.mark.requirement("E-1", "E-2")
@pytest.mark.parametrize("policy", ["dangerous", "all", "configured", "none"])
def test_the_four_modes_are_read(tmp_path: Path, policy: str) -> None:
    assert interceptor(tmp_path, {"approvalPolicy": policy}).approval_policy == policy


@pytest.mark.requirement("E-3")
def test_everything_in_the_section_is_read(tmp_path: Path) -> None:
    section: Json = {
        "_": "mine",
        "enabled": False,
        "approvalPolicy": "configured",
        "exemptTools": ["git/git_status", "now", "now"],
        "sensitiveTools": ["files/write_file"],
        "approvalContained": True,
        "approvalAllowed": True,
    }
    assert interceptor(tmp_path, section) == InterceptorConfig(
        enabled=False,
        approval_policy="configured",
        exempt_tools=("git/git_status", "now"),
        sensitive_tools=("files/write_file",),
        approval_contained=True,
        approval_allowed=True,
    )


@pytest.mark.requirement("E-16")
def test_a_mode_nobody_knows_is_kept_warned_of_and_asks_about_every_tool(tmp_path: Path) -> None:
    document: dict[str, Json] = {"security": {"interceptor": {"approvalPolicy": "dangerus"}}}
    assert warnings(tmp_path, document) == [
        (
            '$.security.interceptor.approvalPolicy: "dangerus" is not one of dangerous, all, '
            'configured, none: every tool is asked about (did you mean "dangerous"?)'
        )
    ]
    config = overlay(tmp_path, document).interceptor
    assert config.approval_policy == "dangerus"
    safe = RatedTool(names=frozenset({"time/now"}), safety_level=SafetyLevel.SAFE)
    assert why_asked(safe, config) is not None


def test_an_empty_mode_is_warned_of(tmp_path: Path) -> None:
    document: dict[str, Json] = {"security": {"interceptor": {"approvalPolicy": ""}}}
    assert '"dangerous" holds' in warnings(tmp_path, document)[0]
    assert overlay(tmp_path, document).interceptor.mode == "dangerous"


@pytest.mark.requirement("X-13")
def test_the_mode_none_is_warned_of(tmp_path: Path) -> None:
    document: dict[str, Json] = {"security": {"interceptor": {"approvalPolicy": "none"}}}
    (warning,) = warnings(tmp_path, document)
    assert "no tool is asked about, not even those of sensitiveTools" in warning


def test_a_switched_off_section_is_warned_of(tmp_path: Path) -> None:
    (warning,) = warnings(tmp_path, {"security": {"interceptor": {"enabled": False}}})
    assert "no tool is asked about" in warning


@pytest.mark.parametrize(
    ("document", "line"),
    [
        *table(
            "config/overlay_settings.what_is_not_known_is_refused",
            list[tuple[dict[str, Json], str]],
        ),
        (
            {"security": {"interceptor": {"approvalPolicy": None}}},
            "$.security.interceptor.approvalPolicy: must be text, not null",
        ),
        (
            {"composites": {"a": {"steps": [{"tool": "t"}] * 51}}},
            "$.composites.a.steps: must be 1 to 50 steps",
        ),
    ],
)
def test_what_is_not_known_is_refused_with_its_place(
    tmp_path: Path, document: dict[str, Json], line: str
) -> None:
    assert refusal(tmp_path, document).startswith(line)


@pytest.mark.requirement("D-9")
def test_one_word_chooses_how_much_is_asked(tmp_path: Path) -> None:
    def chosen(name: str) -> object:
        return overlay(tmp_path, {"capabilities": {"profile": name}}).capabilities.profile

    assert chosen("none") is None
    assert chosen("autonomous") == AUTONOMOUS
    assert chosen("supervised") == SUPERVISED


@pytest.mark.requirement("D-9", "D-40")
def test_a_profile_of_one_s_own_asks_about_what_it_does_not_name(tmp_path: Path) -> None:
    document: Json = {
        "profile": "mine",
        "profiles": {
            "_": "two of them",
            "strict": {"default": "deny", "needsIsolation": True},
            "mine": {
                "rules": {"_": "mine", "fs.read": "allow", "fs.write.outside_base": "deny"},
                "blockedTools": ["git/git_push"],
                "preApprovedTools": ["files/read_file"],
            },
        },
    }
    profile = overlay(tmp_path, {"capabilities": document}).capabilities.profile
    assert profile is not None
    assert profile.name == "mine"
    assert profile.rules == {"fs.read": "allow", "fs.write.outside_base": "deny"}
    assert profile.default == "approve"
    assert profile.blocked_tools == {"git/git_push"}
    assert profile.pre_approved_tools == {"files/read_file"}
    assert not profile.needs_isolation


@pytest.mark.requirement("D-10", "D-15", "D-33")
def test_tools_are_described_with_their_arguments(tmp_path: Path) -> None:
    tools: Json = {
        "files/run": {
            "capabilities": ["proc.exec", "proc.exec"],
            "safetyLevel": "moderate",
            "commandArgument": "command",
            "byArgument": {"_net": {"true": ["net.egress"]}, "out": {"*": ["fs.write"]}},
        },
        "now": {},
    }
    said = overlay(tmp_path, {"capabilities": {"tools": tools}}).capabilities
    assert said.declarations == {
        "files/run": ToolDeclaration(
            tool_id="files/run",
            capabilities=("proc.exec",),
            safety_level=SafetyLevel.MODERATE,
            command_argument="command",
        ),
        "now": ToolDeclaration(tool_id="now"),
    }
    (net, out) = said.by_argument["files/run"]
    assert (net.argument, net.by_value) == ("_net", {"true": ("net.egress",)})
    assert (out.argument, out.by_value) == ("out", {"*": ("fs.write",)})
    assert set(said.by_argument) == {"files/run"}


@pytest.mark.requirement("D-22")
@pytest.mark.parametrize(
    "document",
    [
        {"profiles": {"my": {"rules": {"fs.write:/srv/**": "allow"}}}},
        {"tools": {"t": {"capabilities": ["fs.write:/srv/**"]}}},
        {"tools": {"t": {"byArgument": {"a": {"*": ["fs.write:/srv"]}}}}},
    ],
)
def test_a_scope_is_refused(tmp_path: Path, document: Json) -> None:
    assert "scopes and parameters" in refusal(tmp_path, {"capabilities": document})


@pytest.mark.requirement("D-41")
def test_a_capability_that_means_nothing_is_warned_of(tmp_path: Path) -> None:
    document: Json = {
        "profiles": {
            "my": {"rules": {"fs.wirte": "deny", "own.thing": "deny", "fs.read.x": "deny"}}
        },
        "tools": {"t": {"capabilities": ["own.thing", "fs.raed"]}},
    }
    assert warnings(tmp_path, {"capabilities": document}) == [
        (
            '$.capabilities.profiles.my.rules["fs.wirte"]: "fs.wirte" is no known capability '
            '(did you mean "fs.write"?)'
        ),
        (
            '$.capabilities.tools.t.capabilities[1]: "fs.raed" is no known capability '
            '(did you mean "fs.read"?)'
        ),
    ]


@pytest.mark.requirement("D-44")
def test_flag_and_manifest_are_told_apart(tmp_path: Path) -> None:
    manifest: dict[str, Json] = {"capabilities": {"isolation": "unisolated"}}
    both = overlay(tmp_path, manifest, IRONCURTAIN_ISOLATION="isolated").capabilities
    assert (both.isolation_flag, both.isolation_manifest) == ("isolated", "unisolated")
    only_manifest = overlay(tmp_path, manifest, IRONCURTAIN_ISOLATION="").capabilities
    assert (only_manifest.isolation_flag, only_manifest.isolation_manifest) == (None, "unisolated")
    only_flag = overlay(tmp_path, {}, IRONCURTAIN_ISOLATION="unisolated").capabilities
    assert (only_flag.isolation_flag, only_flag.isolation_manifest) == ("unisolated", None)
    neither = overlay(tmp_path, {}).capabilities
    assert (neither.isolation_flag, neither.isolation_manifest) == (None, None)


@pytest.mark.requirement("D-44")
def test_a_flag_that_is_no_word_for_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError, match="IRONCURTAIN_ISOLATION"):
        load(tmp_path, {}, IRONCURTAIN_ISOLATION="yes")


def test_grants_are_read(tmp_path: Path) -> None:
    section: Json = {
        "ttlSeconds": 600,
        "persist": {"_": "x", "enabled": True, "scope": "project", "expiresDays": 7},
    }
    assert overlay(tmp_path, {"grants": section}).grants == GrantSettings(
        ttl_seconds=600, persist=True, scope="project", expires_days=7
    )


@pytest.mark.requirement("D-23")
def test_composites_are_read_in_their_order(tmp_path: Path) -> None:
    step: Json = {"tool": "git__git_add", "arguments": {"files": ["a"], "_": 1}}
    document: Json = {
        "_": "comment",
        "z-last": {"description": "Adds.", "steps": [step, {"tool": "git__git_status"}]},
        "a_1": {"steps": [step]},
    }
    assert overlay(tmp_path, {"composites": document}).composites == (
        CompositeSpec(
            name="z-last",
            description="Adds.",
            steps=(
                CompositeStep("git__git_add", {"files": ["a"], "_": 1}),
                CompositeStep("git__git_status", {}),
            ),
        ),
        CompositeSpec(name="a_1", steps=(CompositeStep("git__git_add", {"files": ["a"], "_": 1}),)),
    )


def test_tools_of_servers_that_are_not_there_are_warned_of(tmp_path: Path) -> None:
    named: list[Json] = ["gti/git_push", "git__git_push", "git/git_push", "a__b"]
    of_hooks: list[Json] = ["shell/run_command", "fetch/fetch"]
    lists: Json = {"sensitiveTools": [*named, *of_hooks]}
    said = warnings(tmp_path, {"security": {"interceptor": lists}, "serverFilter": ["files"]})
    assert said == [
        (
            '$.security.interceptor.sensitiveTools[0]: there is no server "gti" '
            '(did you mean "git/git_push"?)'
        ),
        (
            "$.security.interceptor.sensitiveTools[1]: the agent's name of a tool: settings use "
            'SERVER/TOOL (did you mean "git/git_push"?)'
        ),
    ]

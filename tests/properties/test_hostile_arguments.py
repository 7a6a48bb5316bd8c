"""Each annotated argument of each shipped tool, with values that are shaped to break a reader."""

from pathlib import Path
from typing import Final, cast

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ironcurtain_proxy
from ironcurtain_proxy.cli.decide import Kernel
from ironcurtain_proxy.config.policy.engine_file import load_engine
from ironcurtain_proxy.model.decision import Allow, Deny, Escalate
from ironcurtain_proxy.model.values import Json
from tests.examples import examples, sample

SHIPPED: Final = Path(ironcurtain_proxy.__file__).parent / "config" / "policy" / "shipped"
NAMES: Final = ("compiled-policy.json", "tool-annotations.json")
REMOTE_TOOLS: Final = ("git_push", "git_fetch", "git_pull", "git_clone")
"""Of the git server that many run beside or instead of the shipped one."""


def _remote_tool(name: str) -> dict[str, object]:
    arguments = {"path": ["read-path"], "remote": ["git-remote-url"], "branch": ["branch-name"]}
    return {"toolName": name, "serverName": "git", "comment": "", "args": arguments}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Kernel, Kernel]:
    """The shipped policy on a real directory, with and without the schemas."""
    place = tmp_path_factory.mktemp("kernel")
    (place / "home" / "work" / ".git").mkdir(parents=True)
    policy, annotations = [orjson.loads((SHIPPED / name).read_bytes()) for name in NAMES]
    annotations["servers"]["git"]["tools"] += [_remote_tool(name) for name in REMOTE_TOOLS]
    engine = {
        "allowedDirectory": str(place / "home" / "work"),
        "protectedPaths": [],
        "home": str(place / "home"),
    }
    for name, content in zip((*NAMES, "engine.json"), (policy, annotations, engine), strict=True):
        (place / name).write_bytes(orjson.dumps(content))
    loaded = load_engine(place, place / "home")
    return (Kernel.of(loaded, check_schemas=False), Kernel.of(loaded, check_schemas=True))


def _nested(depth: int, item: Json) -> Json:
    for _ in range(depth):
        item = [item]
    return item


HOSTILE: Final = cast(
    "tuple[Json, ...]",
    (
        *(
            "/" + "a" * 256,
            "/" + "\u00e9" * 128,
            "/" + "e\u0301" * 90,
            "~/" + "b" * 300,
            "c" * 200_000,
        ),
        *(
            "%41" * 5000,
            "/x" * 5000,
            "a\x00b",
            "/a\x00",
            "\x00",
            "\ud800",
            "/a/\udfff",
            "a\ud83d/b",
        ),
        *(
            "",
            " ",
            "~",
            "~nobody/x",
            "~\x00",
            ".",
            "..",
            "/",
            "//",
            "\\",
            "file:///\x00",
            "\u202e/a",
        ),
        *(
            "http://[::1",
            "http://\x00/",
            "https://" + "a" * 70_000,
            "ext::sh",
            "-x",
            "git@:",
            "://",
        ),
        *(0, -1, 1.5, 10**30, float("inf"), float("nan"), True, False, None, {}, [], [[]], [None]),
        *(["/a", 1], [["/a"]], {"a": "/etc"}, ["/" + "a" * 300], ["\ud800"], ["a\x00"]),
        *(_nested(400, "/a"), _nested(3000, 0), ["/a"] * 20_000, {"\ud800": "\x00"}),
    ),
)


_PLAIN: Final[dict[str, Json]] = {
    "string": "x", "array": [], "integer": 1, "number": 1, "boolean": False, "object": {}
}  # fmt: skip


def _required(kernel: Kernel, server: str, tool: str) -> dict[str, Json]:
    """What the tool's schema demands, harmless, so that the hostile value alone is at fault."""
    schema = orjson.loads(
        orjson.dumps(dict(kernel.engine.loaded.annotations[server, tool].input_schema))
    )
    properties = schema.get("properties", {})
    found: dict[str, Json] = {}
    for name in schema.get("required", ()):
        said = properties.get(name, {})
        found[name] = said["enum"][0] if "enum" in said else _PLAIN[said.get("type", "string")]
        if said.get("minItems"):
            found[name] = [_PLAIN[said.get("items", {}).get("type", "string")]]
    return found


def _check(kernel: Kernel, server: str, tool: str, name: str, value: Json) -> None:
    arguments = _required(kernel, server, tool) | {name: value}
    decision = kernel.decide(server, tool, arguments)
    assert isinstance(decision, Allow | Escalate | Deny)
    if isinstance(decision, Deny) and decision.ground.rule == "invalid-arguments":
        assert name in decision.ground.reason


@pytest.mark.parametrize("schemas", [False, True], ids=["no schema", "schema"])
def test_every_hostile_value_of_every_argument_gets_a_decision(
    kernels: tuple[Kernel, Kernel], *, schemas: bool
) -> None:
    kernel = kernels[schemas]
    places = [
        (server, tool, name)
        for (server, tool), annotation in kernel.engine.loaded.annotations.items()
        for name in annotation.arguments
    ]
    assert len(places) > 50
    for number, place in enumerate(places):
        for value in sample(HOSTILE, number):
            _check(kernel, *place, value)


_TEXTS: Final = st.text(st.characters(exclude_categories=()), max_size=40) | st.builds(
    lambda text, times: text * times,
    st.sampled_from(["a", "/", "../", "\u00e9", "%2e", "\x00", "\ud800", "~"]),
    st.integers(1, 400),
)
_VALUES: Final = st.recursive(
    _TEXTS | st.integers() | st.floats() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=2),
    max_leaves=6,
)


@settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(place=st.integers(0, 10_000), value=_VALUES, schemas=st.booleans())
def test_no_value_of_any_shape_is_without_a_decision(
    kernels: tuple[Kernel, Kernel], place: int, value: Json, *, schemas: bool
) -> None:
    kernel = kernels[schemas]
    every = [
        (server, tool, name)
        for (server, tool), annotation in kernel.engine.loaded.annotations.items()
        for name in annotation.arguments
    ]
    _check(kernel, *every[place % len(every)], value)

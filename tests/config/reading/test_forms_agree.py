"""The fast reading and the slow one agree on every form, whatever stands at any place."""

from collections.abc import Iterator
from copy import deepcopy

import pytest
from msgspec import Struct, ValidationError, convert

from ironcurtain_proxy.config.auto_confirm import AutoConfirmForm
from ironcurtain_proxy.config.policy.annotations_file import AnnotationsForm
from ironcurtain_proxy.config.policy.engine_file import EngineForm
from ironcurtain_proxy.config.policy.managed import ManagedForm
from ironcurtain_proxy.config.policy.policy_file import ListsForm, PolicyForm
from ironcurtain_proxy.config.reading.document import DocumentNode, Report
from ironcurtain_proxy.config.reading.forms import fill_slowly
from ironcurtain_proxy.config.servers.remote_entry import RemoteForm
from ironcurtain_proxy.config.servers.servers_file import BuiltinForm, ProcessForm
from ironcurtain_proxy.model.values import Json
from tests.config.files import RULE, TOOL, annotations, policy, replaced

SAMPLES: list[tuple[type[Struct], dict[str, Json]]] = [
    (PolicyForm, policy(RULE, base="coding", listDefinitions=[{"name": "a", "type": "emails"}])),
    (AnnotationsForm, annotations({**TOOL, "effect": "runs"})),
    (ListsForm, {"lists": {"a": {"values": ["x"], "manualAdditions": ["y"]}}}),
    (ManagedForm, {"keep": ["pins"]}),
    (EngineForm, {"allowedDirectory": "/a", "ask": {"a": "form", "b": ["url"]}, "home": None}),
    (
        ProcessForm,
        {
            "command": "x",
            "args": ["a"],
            "env": {"A": "b"},
            "sandbox": {"filesystem": {"private": ["~/.x"]}, "network": False, "limits": {}},
            "results": {"clean": True},
        },
    ),
    (BuiltinForm, {"builtin": "shell", "sandbox": True, "ask": "none", "pins": "on"}),
    (
        RemoteForm,
        {
            "url": "https://a.example/",
            "headers": {"X": "y"},
            "addresses": ["10.0.0.1"],
            "proxy": "http://p:1",
            "oauth": {"clientId": "a", "clientSecret": "s", "issuer": "https://i.example"},
        },
    ),
    (
        AutoConfirmForm,
        {
            "safety_rules": [{"pattern": "file_delete", "action": "escalate"}],
            "night_mode": {"start_hour": 3},
            "on_timeout": {"edit": "approve"},
            "reviewers": [{"name": "a", "kind": "session", "mailbox": "m", "token_file": "t"}],
            "store": {"keep_days": 0},
            "notifications": {"kind": "file", "file": "x", "summary_minutes": 0},
        },
    ),
]
WORDS = ("", "x", "a\0", "a\n", "~/..", "http://[", "none", "form", "deny")
NUMBERS = (0, 1, -1, 0.5, 1.0, 2**63)
VALUES: list[Json] = [None, True, False, *NUMBERS, *WORDS, [], {}, ["x"], [None], {"x": 1}]


def places(value: Json, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield each place in a document but the root."""
    inner: Iterator[tuple[str | int, Json]] = iter(())
    if isinstance(value, dict):
        inner = iter(value.items())
    elif isinstance(value, list):
        inner = iter(enumerate(value))
    for part, one in inner:
        yield (*place, part)
        yield from places(one, (*place, part))


@pytest.mark.parametrize(("kind", "sample"), SAMPLES, ids=lambda one: getattr(one, "__name__", ""))
def test_both_readings_accept_the_same_documents(
    kind: type[Struct], sample: dict[str, Json]
) -> None:
    differing: list[tuple[object, ...]] = []
    for place in places(sample):
        for value in VALUES:
            document = replaced(sample, place, deepcopy(value))
            try:
                fast: object = convert(document, kind)
            except ValidationError:
                fast = None
            report = Report()
            slow = fill_slowly(DocumentNode(document, "", report), kind)
            if (slow if not report.problems else None) != fast:
                differing.append((place, value, [str(one) for one in report.problems]))
    assert differing == []

"""JSON Schemas of the files that people write, made from their forms for editors.

An editor that finds the key `$schema` in a file completes keys, and marks mistakes while they are
written. What needs more than one file, such as whether a list exists, is said by `check` alone.
"""

import ast
import inspect
from collections.abc import Iterator, Mapping
from itertools import pairwise
from textwrap import dedent
from typing import Any, Final, Literal, TypeAlias  # noqa: TID251  schemas are changed in place

from msgspec import Struct
from msgspec.json import schema_components

from ironcurtain_proxy.config.auto_confirm import AutoConfirmForm
from ironcurtain_proxy.config.policy.annotations_file import AnnotationsForm
from ironcurtain_proxy.config.policy.engine_file import EngineForm
from ironcurtain_proxy.config.policy.managed import ManagedForm
from ironcurtain_proxy.config.policy.policy_file import ListsForm, PolicyForm
from ironcurtain_proxy.config.policy.reviewers_file import ReviewersForm
from ironcurtain_proxy.config.reading.forms import (
    SCHEMA_KEY,
    Form,
    NameText,
    VariableName,
    declarations,
)
from ironcurtain_proxy.config.servers.remote_entry import RemoteForm
from ironcurtain_proxy.config.servers.servers_file import BuiltinForm, ProcessForm
from ironcurtain_proxy.config.settings import KEYS, SECTIONS
from ironcurtain_proxy.model.conditions import VALUE_CONDITIONS, Condition

DocumentKind: TypeAlias = Literal[
    "config", "servers", "policy", "annotations", "lists", "reviewers", "managed", "engine"
]
"""A kind of file that people write."""

_SERVERS: Final = (ProcessForm, BuiltinForm, RemoteForm)
_DOCUMENTS: Final[Mapping[DocumentKind, tuple[str, tuple[type[Form], ...]]]] = {
    "config": ("config.json", (*_SERVERS, AutoConfirmForm)),
    "servers": ("mcp-servers.json", _SERVERS),
    "policy": ("compiled-policy.json", (PolicyForm,)),
    "annotations": ("tool-annotations.json", (AnnotationsForm,)),
    "lists": ("dynamic-lists.json", (ListsForm,)),
    "reviewers": ("reviewers.json", (ReviewersForm,)),
    "managed": ("managed.json, of an administrator", (ManagedForm,)),
    "engine": ("engine.json, of decide --dir", (EngineForm,)),
}
FILES: Final = {kind: file for kind, (file, _) in _DOCUMENTS.items()}
_OTHER_TYPES: Final[Mapping[str, Any]] = {
    "serverFilter": tuple[NameText, ...],
    "serverCredentials": dict[str, dict[VariableName, NameText]],
    "protectedPaths": tuple[NameText, ...],
    "capabilities.profiles": dict[str, Any],
    "capabilities.tools": dict[str, Any],
    "composites": dict[str, Any],
    "security.interceptor.enabled": bool,
    "security.interceptor.approvalPolicy": str,
    "security.interceptor.approvalRequired": bool,
    "security.interceptor.approvalContained": bool,
    "security.interceptor.approvalAllowed": bool,
    "security.interceptor.exemptTools": tuple[NameText, ...],
    "security.interceptor.sensitiveTools": tuple[NameText, ...],
}
"""The types of keys that no field of `SECTIONS` declares. All others are texts: paths, words."""
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_COMMENTS: Final = "^_"

_Schema: TypeAlias = dict[str, Any]


def schema_of(kind: DocumentKind) -> _Schema:
    """Return the JSON Schema of a kind of file."""
    _, forms = _DOCUMENTS[kind]
    conditions: tuple[type[Condition], ...] = VALUE_CONDITIONS if kind == "policy" else ()
    types = (*forms, *[one.written for one in conditions])
    roots, components = schema_components(types, ref_template="#/$defs/{name}")
    for form in _with_inner((*forms, *conditions)):
        if form.__name__ in components:
            _describe(components[form.__name__], form)
    root: _Schema = roots[0]
    if kind == "servers":
        root = _of_servers(list(roots))
    elif kind == "policy":
        written = {one.key: said for one, said in zip(conditions, roots[1:], strict=True)}
        components["ConditionsForm"]["properties"] |= written
    elif kind == "config":
        root = _of_config(_of_servers(list(roots[:-1])), roots[-1])
    inner = {name: _with_comments(one) for name, one in components.items()}
    return {"$schema": _DIALECT, "title": FILES[kind], **root, "$defs": inner}


def _of_servers(entries: list[_Schema]) -> _Schema:
    """Return the schema of entries by name, bare or in `mcpServers`."""
    entry: _Schema = {"anyOf": entries}
    by_name = {"type": "object", "additionalProperties": entry}
    return {
        "type": "object",
        "properties": {SCHEMA_KEY: {"type": "string"}, "mcpServers": by_name},
        "patternProperties": {_COMMENTS: {}},
        "additionalProperties": entry,
    }


def _of_config(servers: _Schema, engine: _Schema) -> _Schema:
    """Return the schema of the configuration, from the settings' declarations."""
    root = _section()
    for key in KEYS:
        *sections, last = key.split(".")
        _at(root, sections)["properties"][last] = {"type": "string", "minLength": 1}
    for key, kind in _OTHER_TYPES.items():
        *sections, last = key.split(".")
        (found,), _ = schema_components((kind,))
        _at(root, sections)["properties"][last] = found
    for section, kind in SECTIONS:
        inside = _at(root, section.split(".")[:-1])
        words = dict(_attribute_docs(ast.parse(inspect.getsource(kind)).body[0]))
        for one in declarations(kind):
            *sections, last = one.key.split(".")
            (found,), _ = schema_components((one.kind,))
            if one.default is not None:
                found["default"] = _listed(one.default)
            if one.name in words:
                found["description"] = words[one.name]
            _at(inside, sections)["properties"][last] = found
    root["properties"]["auto_confirm"] = engine
    root["properties"]["mcpServers"] = servers["properties"]["mcpServers"]
    return root


def _section() -> _Schema:
    return {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
        "patternProperties": {_COMMENTS: {}},
    }


def _at(schema: _Schema, sections: list[str]) -> _Schema:
    """Return the schema of a section, which is made if it is not there yet."""
    for name in sections:
        schema = schema["properties"].setdefault(name, _section())
    return schema


def _listed(default: object) -> object:
    return sorted(default) if isinstance(default, frozenset) else default


def _with_comments(schema: _Schema) -> _Schema:
    """Allow comments in an object with known keys, and leave out defaults that say nothing."""
    if schema.get("additionalProperties") is False:
        schema["patternProperties"] = {_COMMENTS: {}}
    for one in schema.get("properties", {}).values():
        if isinstance(one.get("default"), dict):
            del one["default"]
    return schema


def _with_inner(forms: tuple[type[Struct], ...]) -> Iterator[type[Struct]]:
    """Yield each form that a module of these forms knows."""
    for form in forms:
        for one in vars(inspect.getmodule(form)).values():
            if isinstance(one, type) and issubclass(one, Struct):
                yield one


def _describe(schema: _Schema, form: type[Struct]) -> None:
    """Add the docstrings of a form's fields, which stand in its source."""
    keys = dict(zip(form.__struct_fields__, form.__struct_encode_fields__, strict=True))
    for kind in form.__mro__:
        if not issubclass(kind, Struct) or kind is Struct:
            continue
        (body,) = ast.parse(dedent(inspect.getsource(kind))).body
        for name, words in _attribute_docs(body):
            schema["properties"][keys[name]].setdefault("description", words)


def _attribute_docs(body: ast.stmt) -> Iterator[tuple[str, str]]:
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for before, after in pairwise(statements):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            yield before.target.id, " ".join(str(after.value.value).split())

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

from ironcurtain_proxy.config.policy.annotations_file import AnnotationsForm
from ironcurtain_proxy.config.policy.engine_file import EngineForm
from ironcurtain_proxy.config.policy.lists_file import ListsForm
from ironcurtain_proxy.config.reading.forms import SCHEMA_KEY
from ironcurtain_proxy.config.servers.remote_entry import RemoteForm
from ironcurtain_proxy.config.servers.servers_file import BuiltinForm, ProcessForm

DocumentKind: TypeAlias = Literal["servers", "annotations", "lists", "engine"]
"""A kind of file that people write."""

FILES: Final[Mapping[DocumentKind, str]] = {
    "servers": "mcp-servers.json",
    "annotations": "tool-annotations.json",
    "lists": "dynamic-lists.json",
    "engine": "engine.json, of decide --dir",
}
_FORMS: Final[Mapping[DocumentKind, tuple[type[Struct], ...]]] = {
    "servers": (ProcessForm, BuiltinForm, RemoteForm),
    "annotations": (AnnotationsForm,),
    "lists": (ListsForm,),
    "engine": (EngineForm,),
}
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_COMMENTS: Final = "^_"

_Schema: TypeAlias = dict[str, Any]


def schema_of(kind: DocumentKind) -> _Schema:
    """Return the JSON Schema of a kind of file."""
    forms = _FORMS[kind]
    roots, components = schema_components(forms, ref_template="#/$defs/{name}")
    for form in _with_inner(forms):
        if form.__name__ in components:
            _describe(components[form.__name__], form)
    root: _Schema = roots[0] if kind != "servers" else _of_servers(list(roots))
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

"""`ironcurtain-proxy decide`: calls as JSON lines in, decisions out. No server is started."""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Final, cast

import orjson
from msgspec import Struct

from ironcurtain_proxy.cli.output import decided, escalated_roles
from ironcurtain_proxy.config.policy.engine_file import LoadedEngine, load_engine
from ironcurtain_proxy.decision.authorizer import authorize, unasked
from ironcurtain_proxy.decision.rules import gravest_first
from ironcurtain_proxy.facts.arguments import OperationSource, Speller, plan_for
from ironcurtain_proxy.facts.facts import FactReader, unresolvable
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.live_catalogue import as_unknown, guessed, widened
from ironcurtain_proxy.facts.operations import facts_of_question, named_by
from ironcurtain_proxy.facts.paths import PathReader
from ironcurtain_proxy.facts.schema import SchemaChecker
from ironcurtain_proxy.model.annotation import ToolAnnotation
from ironcurtain_proxy.model.crossing import on_the_wire, operation_of
from ironcurtain_proxy.model.decision import Allow, Decision, Deny, Ground
from ironcurtain_proxy.model.operation import (
    QUESTION_METHODS,
    TOOL_CALL,
    Operation,
    ParsedRequest,
    RequestId,
)
from ironcurtain_proxy.model.request import AccessRequest, Facts, Gathered, Unresolvable
from ironcurtain_proxy.model.server import Root, initial_roots
from ironcurtain_proxy.model.values import Arguments, Json, object_of

# --- the policy as `serve` has it -----------------------------------------------------------------
# The kernel on files: facts and policy, no servers, no session.
#
# The part that `decide` and `explain` share. Knows how files and facts are read. Does not know
# how answers are printed.


class Kernel(Struct):
    """Decides calls against one set of files."""

    engine: LoadedEngine
    facts: FactReader
    """The reader for tool calls: as lenient as the original, whose recorded decisions are replayed
    with it."""
    strict: FactReader
    """The reader for all other operations, as in `serve`."""
    remotes: GitRemotes
    schemas: SchemaChecker | None
    """The checker of arguments against annotated schemas, or None if they are not checked."""

    @classmethod
    def of(cls, engine: LoadedEngine, *, check_schemas: bool) -> "Kernel":
        """Return a kernel for the files of a directory."""
        workspace = engine.loaded.policy.workspace
        speller = Speller(
            home=str(engine.home),
            workspace=None if workspace is None else str(workspace),
            cwd=str(Path.cwd()),
            alias=engine.container_workspace_dir,
        )
        return cls(
            engine=engine,
            facts=FactReader(
                PathReader(speller, keep_unreadable=True),
                cwd=str(Path.cwd()),
                plain_urls_only=False,
            ),
            strict=FactReader(PathReader(speller), workspace=workspace),
            remotes=GitRemotes({**os.environ, "HOME": str(engine.home)}),
            schemas=SchemaChecker() if check_schemas else None,
        )

    def gather(self, server: str, tool: str, arguments: Arguments) -> Gathered:
        """Return the facts of one call."""
        loaded = self.engine.loaded
        annotation = loaded.annotations.get((server, tool))
        is_trusted = server in loaded.policy.trusted_servers
        if annotation is None and not is_trusted and loaded.policy.unknown_tools == "ask":
            return self._gather_unknown(server, tool, arguments)
        if annotation is None or is_trusted:
            return _without_facts(server, tool, arguments, annotated=annotation is not None)
        if self.schemas is not None:
            # A schema is compiled once for each object, so no copy of it is passed. Its type is
            # wider than the dict that the parser makes.
            schema: Json = annotation.input_schema  # type: ignore[assignment]
            arguments, problem = self.schemas.fitted(annotation, schema, arguments)
            if problem is not None:
                return self._gather_wider(annotation, arguments) or unresolvable(problem)
        return self.facts.read(self.facts.plan(annotation), arguments, self.remotes)

    def _gather_unknown(self, server: str, tool: str, arguments: Arguments) -> Gathered:
        annotation = guessed(server, tool, arguments)
        gathered = self.strict.read(plan_for(annotation), arguments, self.remotes)
        return as_unknown(gathered) if isinstance(gathered, Facts) else gathered

    def _gather_wider(self, annotation: ToolAnnotation, arguments: Arguments) -> Gathered | None:
        """Return the facts of a call with unknown arguments, or None if these are the fault."""
        asks = self.engine.loaded.policy.unknown_tools == "ask"
        wider = widened(annotation, arguments) if asks else None
        if wider is None or self.schemas is None:
            return None
        schema = cast("Json", annotation.input_schema)
        if self.schemas.problem(wider, schema, arguments) is not None:
            return None
        gathered = self.strict.read(plan_for(wider), arguments, self.remotes)
        return as_unknown(gathered) if isinstance(gathered, Facts) else gathered

    def gather_operation(self, operation: Operation) -> Gathered:
        """Return the facts of an operation that is no tool call. A view is taken for declared."""
        if operation.method in QUESTION_METHODS:
            return facts_of_question(operation, str)
        source = OperationSource(prompts=self.engine.loaded.prompts)
        named = named_by(operation, source, lambda _server, _uri: True)
        if isinstance(named, Unresolvable):
            return named
        return self.strict.read(plan_for(named.annotation), named.arguments, self.remotes)

    def decide_request(self, server: str, method: str, params: Mapping[str, Json]) -> Decision:
        """Return the kernel's answer to a request on the wire that is no tool call."""
        if method == ROOTS_LIST:
            return roots_answer(initial_roots(self.engine.loaded.policy, server))
        asked = on_the_wire(server, method, params)
        return Deny(asked) if isinstance(asked, Ground) else self._decide_operation(asked)

    def _decide_operation(self, asked: ParsedRequest) -> Decision:
        gathered = self.gather_operation(operation_of(asked, RequestId("decided")))
        if not isinstance(gathered, Facts):
            return Deny(gathered.ground)
        decision = gravest_first(authorize(gathered.request, self.engine.loaded.policy))
        return unasked(decision) if asked.method == "completion/complete" else decision

    def decide(self, server: str, tool: str, arguments: Arguments) -> Decision:
        """Return the kernel's decision on one call."""
        gathered = self.gather(server, tool, arguments)
        if isinstance(gathered, Facts):
            return authorize(gathered.request, self.engine.loaded.policy)
        return Deny(gathered.ground)


ROOTS_LIST: Final = "roots/list"


def roots_answer(roots: Sequence[Root]) -> Allow:
    """Return the answer to a server that asks for roots, which is always given."""
    told = ", ".join([root.uri for root in roots]) or "none"
    return Allow(Ground("policy-roots", f"Roots come from the policy: {told}"))


def _without_facts(server: str, tool: str, arguments: Arguments, *, annotated: bool) -> Facts:
    given = bool(arguments)
    request = AccessRequest(
        server=server, tool=tool, annotated=annotated, has_arguments=given, arguments=()
    )
    return Facts(request=request, arguments=arguments)


# --- the command ----------------------------------------------------------------------------------

_MAX_LINE: Final = 64 << 20
"""The most bytes of one call, as in `serve`."""


def run(options: argparse.Namespace) -> int:
    """Decide until the input ends. Deny an unreadable line, and then return 1."""
    home = Path(os.environ.get("HOME", "/"))
    kernel = Kernel.of(load_engine(options.dir, home), check_schemas=not options.no_schema)
    failed = False
    for lines in _batches(cast("BufferedReader", sys.stdin.buffer)):
        answers = [_written(kernel, line) for line in lines if line is None or line.strip()]
        failed |= not all(understood for _, understood in answers)
        # Who waits for an answer before the next call gets it: no line is left that came before.
        sys.stdout.buffer.write(b"".join([answer for answer, _ in answers]))
        sys.stdout.buffer.flush()
    return int(failed)


def _batches(source: BufferedReader) -> Iterator[list[bytes | None]]:
    """Yield the lines that came at once, with None for one that is too long and is not stored."""
    begun: list[bytes] = []
    size = 0
    while block := source.read1(1 << 16):
        first, *lines = block.split(b"\n")
        size += len(first)
        begun = [*begun, first] if size <= _MAX_LINE else []
        if lines:
            yield [b"".join(begun) if size <= _MAX_LINE else None, *lines[:-1]]
            begun, size = [lines[-1]], len(lines[-1])
    yield [b"".join(begun) if size <= _MAX_LINE else None]


def _written(kernel: Kernel, line: bytes | None) -> tuple[bytes, bool]:
    """Return the answer as a line. Every line is answered, also one that cannot be read."""
    if line is None:
        return _line_of(_not_understood(None, f"the line is longer than {_MAX_LINE} bytes")), False
    try:
        answer, understood = _answer(kernel, line)
        return orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE), understood
    except Exception as error:  # noqa: BLE001  any failure is a denial
        reason = f"the call could not be decided ({type(error).__name__})"
        return _line_of(_not_understood(_identifier(line), reason)), False


def _line_of(answer: dict[str, Json]) -> bytes:
    return orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE)


def _identifier(line: bytes) -> Json:
    """Return the id of a line that could not be decided, or None if it has no readable id."""
    try:
        found: Json = object_of(orjson.loads(line)).get("id")
        orjson.dumps(found)
    except (ValueError, TypeError, RecursionError):
        return None
    return found


def _answer(kernel: Kernel, line: bytes) -> tuple[dict[str, Json], bool]:
    try:
        call = orjson.loads(line)
    except ValueError:
        return _not_understood(None, "the line is not JSON"), False
    if not isinstance(call, dict):
        return _not_understood(None, "the line is not a JSON object"), False
    if isinstance(call.get("id"), dict | list):
        return _not_understood(None, "id must be a text, a number, true, false or null"), False
    server, tool, method = call.get("serverName"), call.get("toolName"), call.get("method")
    arguments = call.get("arguments", {})
    if isinstance(server, str) and isinstance(method, str):
        return _operation(kernel, call, server, method)
    if not isinstance(server, str) or not isinstance(tool, str) or not isinstance(arguments, dict):
        return _not_understood(
            call.get("id"), "serverName and toolName must be strings and arguments an object"
        ), False
    return _as_json(call.get("id"), kernel.decide(server, tool, arguments)), True


def _operation(
    kernel: Kernel, call: dict[str, Json], server: str, method: str
) -> tuple[dict[str, Json], bool]:
    params = call.get("params", {})
    if not isinstance(params, dict):
        return _not_understood(call.get("id"), "params must be an object"), False
    tool, arguments = params.get("name"), params.get("arguments", {})
    if method == TOOL_CALL and isinstance(tool, str) and isinstance(arguments, dict):
        return _as_json(call.get("id"), kernel.decide(server, tool, arguments)), True
    return _as_json(call.get("id"), kernel.decide_request(server, method, params)), True


def _as_json(identifier: Json, decision: Decision) -> dict[str, Json]:
    return {"id": identifier, **decided(decision), "escalatedRoles": escalated_roles(decision)}


def _not_understood(identifier: Json, reason: str) -> dict[str, Json]:
    said: dict[str, Json] = {"id": identifier, "decision": "deny", "rule": "invalid-request"}
    return {**said, "reason": reason, "escalatedRoles": []}

"""The kernel on files alone: facts and policy, no servers, no session.

The part that `decide` and `explain` share. Knows how files and facts are read. Does not know how
answers are printed.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from ironcurtain_proxy.config.policy.engine_file import LoadedEngine
from ironcurtain_proxy.config.servers.roots import Root, initial_roots
from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.decision.combining import gravest_first
from ironcurtain_proxy.decision.completions import unasked
from ironcurtain_proxy.facts.facts import FactReader, unresolvable
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.operations import OperationSource, named_by
from ironcurtain_proxy.facts.paths import PathReader
from ironcurtain_proxy.facts.schema import SchemaChecker
from ironcurtain_proxy.facts.server_questions import facts_of_question
from ironcurtain_proxy.facts.spelling import Speller
from ironcurtain_proxy.facts.unknown_tools import as_unknown, guessed, widened
from ironcurtain_proxy.model.annotation import ToolAnnotation
from ironcurtain_proxy.model.asked import on_the_wire, operation_of
from ironcurtain_proxy.model.decision import Allow, Decision, Deny, Ground
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.operation import QUESTION_METHODS, Operation, ParsedRequest, RequestId
from ironcurtain_proxy.model.request import AccessRequest, Facts, Gathered, Unresolvable


@dataclass(slots=True)
class Kernel:
    """Decides calls against one set of files."""

    engine: LoadedEngine
    facts: FactReader
    """The reader for tool calls: as lenient as the original, whose recorded decisions are replayed
    with it."""
    strict: FactReader
    """The reader for all other operations, as in `serve`."""
    remotes: GitRemotes
    schemas: SchemaChecker | None
    """The checker of arguments against annotated schemas; None: they are not checked."""

    @classmethod
    def of(cls, engine: LoadedEngine, *, check_schemas: bool) -> "Kernel":
        """A kernel for the files of a directory."""
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
        """The facts of one call."""
        loaded = self.engine.loaded
        annotation = loaded.annotations.get((server, tool))
        is_trusted = server in loaded.policy.trusted_servers
        if annotation is None and not is_trusted and loaded.policy.unknown_tools == "ask":
            return self._gather_unknown(server, tool, arguments)
        if annotation is None or is_trusted:
            return _without_facts(server, tool, arguments, annotated=annotation is not None)
        if self.schemas is not None:
            # The parser made it, so it is a dict. A copy for each call would be compiled anew.
            schema = cast("Json", annotation.input_schema)
            problem = self.schemas.problem(annotation, schema, arguments)
            if problem is not None:
                return self._gather_wider(annotation, arguments) or unresolvable(problem)
        return self.facts.read(annotation, arguments, self.remotes)

    def _gather_unknown(self, server: str, tool: str, arguments: Arguments) -> Gathered:
        annotation = guessed(server, tool, arguments)
        gathered = self.strict.read(annotation, arguments, self.remotes)
        return as_unknown(gathered) if isinstance(gathered, Facts) else gathered

    def _gather_wider(self, annotation: ToolAnnotation, arguments: Arguments) -> Gathered | None:
        """The facts of a call with arguments that nobody described; None: they are the fault."""
        asks = self.engine.loaded.policy.unknown_tools == "ask"
        wider = widened(annotation, arguments) if asks else None
        if wider is None or self.schemas is None:
            return None
        schema = cast("Json", annotation.input_schema)
        if self.schemas.problem(wider, schema, arguments) is not None:
            return None
        gathered = self.strict.read(wider, arguments, self.remotes)
        return as_unknown(gathered) if isinstance(gathered, Facts) else gathered

    def gather_operation(self, operation: Operation) -> Gathered:
        """The facts of an operation that is no tool call. A view is taken for declared."""
        if operation.method in QUESTION_METHODS:
            return facts_of_question(operation, str)
        source = OperationSource(prompts=self.engine.loaded.prompts)
        named = named_by(operation, source, lambda _server, _uri: True)
        if isinstance(named, Unresolvable):
            return named
        return self.strict.read(named.annotation, named.arguments, self.remotes)

    def decide_request(self, server: str, method: str, params: Mapping[str, Json]) -> Decision:
        """The kernel's answer to a request that is no tool call, as it stands on the wire."""
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
        """The kernel's decision on one call."""
        gathered = self.gather(server, tool, arguments)
        if isinstance(gathered, Facts):
            return authorize(gathered.request, self.engine.loaded.policy)
        return Deny(gathered.ground)


ROOTS_LIST: Final = "roots/list"


def roots_answer(roots: Sequence[Root]) -> Allow:
    """The answer to a server that asks for roots, which is always given."""
    told = ", ".join([root.uri for root in roots]) or "none"
    return Allow(Ground("policy-roots", f"Roots come from the policy: {told}"))


def _without_facts(server: str, tool: str, arguments: Arguments, *, annotated: bool) -> Facts:
    request = AccessRequest(
        server=server,
        tool=tool,
        annotated=annotated,
        has_arguments=bool(arguments),
        arguments=(),
    )
    return Facts(request=request, arguments=arguments)

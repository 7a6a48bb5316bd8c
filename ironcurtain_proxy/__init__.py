"""A security kernel between an agent and its MCP servers: policy decides each tool call.

The life of a call:

- `agent`: the MCP server that the agent talks to.
- `mediation`: a call from its arrival to its reply; begin to read here.
- `facts`: an untrusted call becomes facts. `shell` reads and judges shell commands.
- `origins`: who named the targets of a call.
- `decision`: the policy's answer. `approval`: what asks besides the policy.
- `grants`: approvals that are remembered.
- `review`: open questions and who answers them. `mailbox`: questions and answers as files.
- `pins`: what servers said of themselves when they were trusted.
- `downstream`: the servers. `sandbox`: their confinement. `audit`: the log of all calls.
- `own_shell`: our own shell server. `transactions`: a command in a view of its own, whose changes
  come in by our own hand.
- `credentials`: the table of files that hold keys and passwords.
- `control_places`: paths of a workspace through which a file makes the host run something.

What all share: `model`, `errors`, `ports`, `jsonrpc`, `private_directory`, `private_files`,
`strict_json`, `snapshots`, `inotify`.

Off by default, and skipped by a reader of the default product: `auto_confirm`, the engine;
`auto_approver`, the LLM approver; `llm`, the one way to a language model; `telemetry`, spans and
metrics; `signing` and `key_forms`, keys of those who sign their answers; `bundle`, the policy of a
fleet; `fleet`, questions of many machines in a database.

What people and programs start from: `cli`, `config`, `wiring`, `trusted_process`, `inbox`.
`rehearsal` reads recorded sessions and counts what would be asked. `report` draws pages. `web` is
the reviewer's page in a browser, `front` what agents reach over HTTP.
`hooks` is the door of clients' own tools.
`sessions`: the directories and the list of running sessions. `own_process`: what the proxy does to
its own process. `children`: which of its child processes it started itself. `steady_clock`: seconds
that no change of the clock moves. `lasting`: services beside the calls, which begin again after a
defect. `version`: the number of this release.

A program imports its names from here; `docs/embedding.md` says how they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from ironcurtain_proxy.version import VERSION

if TYPE_CHECKING:
    from ironcurtain_proxy.config.settings import Settings
    from ironcurtain_proxy.errors import IronCurtainError
    from ironcurtain_proxy.inbox import EscalationInbox
    from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation
    from ironcurtain_proxy.model.grant import Candidate
    from ironcurtain_proxy.trusted_process import ToolCallRequest, ToolCallResponse, TrustedProcess

__version__ = VERSION

__all__ = [
    "Approved",
    "Candidate",
    "Declined",
    "Escalation",
    "EscalationInbox",
    "IronCurtainError",
    "Settings",
    "ToolCallRequest",
    "ToolCallResponse",
    "TrustedProcess",
]

_HOMES: Final = {
    "Approved": "model.escalation",
    "Candidate": "model.grant",
    "Declined": "model.escalation",
    "Escalation": "model.escalation",
    "EscalationInbox": "inbox",
    "IronCurtainError": "errors",
    "Settings": "config.settings",
    "ToolCallRequest": "trusted_process",
    "ToolCallResponse": "trusted_process",
    "TrustedProcess": "trusted_process",
}
"""The module of each public name. It is imported with the name's first use, so that the commands
and the start of the proxy do not load what only programs need."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

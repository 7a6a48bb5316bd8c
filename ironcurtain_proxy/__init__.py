"""A security kernel between an agent and its MCP servers: policy decides each tool call.

The life of a call:

- `agent`: the MCP server that the agent talks to.
- `mediation`: a call from its arrival to its reply; begin to read here.
- `facts`: an untrusted call becomes facts. `shell` reads and judges shell commands.
- `decision`: the policy's answer. `approval`: what asks besides the policy.
- `grants`: approvals that are remembered.
- `review`: open questions and who answers them. `mailbox`: questions and answers as files.
- `downstream`: the servers. `sandbox`: their confinement. `audit`: the log of all calls.

What all share: `model`, `errors`, `ports`, `jsonrpc`, `private_directory`, `strict_json`,
`snapshots`.

Off by default, and skipped by a reader of the default product: `auto_confirm`, the engine;
`auto_approver`, the LLM approver; `llm`, the one way to a language model.

What people and programs start from: `cli`, `config`, `wiring`, `trusted_process`, `inbox`.
- Also: `steady_clock`.
"""

__version__ = "0.1.0"

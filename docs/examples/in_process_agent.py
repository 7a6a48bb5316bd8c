"""An agent whose tool calls the kernel decides in the agent's own process.

python in_process_agent.py FILE...

The settings are those of the proxy: the environment and ~/.ironcurtain/config.json.
"""

import sys

import anyio

from ironcurtain_proxy import Approved, Declined, Escalation, Settings, TrustedProcess


async def ask(escalation: Escalation) -> Approved | Declined:
    """Answer what the policy escalates. Here: reads are approved and remembered."""
    print(f"asked about {escalation.tool}: {escalation.ground.reason}")
    if escalation.roles != ("read-path",):
        return Declined(note="this agent only reads")
    offered = escalation.candidates
    return Approved(remember=offered[0] if offered else None)


async def main(files: list[str]) -> None:
    """Read each file through the filesystem server."""
    async with TrustedProcess(Settings.from_environment(), on_escalation=ask) as kernel:
        for file in files:
            answer = await kernel.call_tool("filesystem", "read_text_file", {"path": file})
            print(answer.status, answer.rule, answer.allowed_by or answer.refused_by)


anyio.run(main, sys.argv[1:])

"""What a shell command amounts to. Pure: no I/O, no clock, no log.

This room knows no parser: it judges a `ParsedCommand`.
"""

from ironcurtain_proxy.approval.shell.judging import CommandVerdict, any_program, judge_command
from ironcurtain_proxy.approval.shell.operations import DANGER, ShellOperation, operation_of

__all__ = [
    "DANGER",
    "CommandVerdict",
    "ShellOperation",
    "any_program",
    "judge_command",
    "operation_of",
]

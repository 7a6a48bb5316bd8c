"""What can go wrong, by whose fault, and what becomes of it.

A refusal is a value (`model.decision.Deny`); what stands here is a fault. Messages are one line,
say where and what to do, and hold no argument values: some of them reach the agent.
"""


class IronCurtainError(Exception):
    """Root of every fault this package raises on purpose."""


class ConfigurationError(IronCurtainError):
    """The operator's files or environment cannot be used: the program refuses to start, exit 2."""


class AgentError(IronCurtainError):
    """The agent sent what the protocol does not allow: it gets a JSON-RPC error."""


class DownstreamError(IronCurtainError):
    """A server behind us failed: the call ends in an error result, the others are unaffected."""


class ServerUnavailableError(DownstreamError):
    """The server is not running: it did not start, or crashed and is not back yet."""


class UnansweredError(DownstreamError):
    """A call was sent and no answer came that can be used: it may have been carried out."""


class CallTimedOutError(UnansweredError):
    """The server did not answer within the deadline of a call."""


class CallLostError(ServerUnavailableError, UnansweredError):
    """The server ended while it had a call."""


class BusyError(IronCurtainError):
    """Something the call needs for itself is in use: refused, and may be tried again."""


class AuditError(IronCurtainError):
    """A record could not be written in time: nothing is forwarded any more."""


class KernelError(IronCurtainError):
    """A defect of ours: the call is denied."""

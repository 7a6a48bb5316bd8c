"""Faults by the side that caused them, with their consequences.

A refusal is a value (`model.decision.Deny`), not an exception. Messages are one line, say where
and what to do, and hold no argument values, because some of them reach the agent.
"""


class IronCurtainError(Exception):
    """The base class of every exception that this package raises on purpose."""


class ConfigurationError(IronCurtainError):
    """The operator's files or environment are invalid: the program does not start; exit code 2."""


class AgentError(IronCurtainError):
    """The agent violated the protocol: it gets a JSON-RPC error."""


class DownstreamError(IronCurtainError):
    """A server failed: its call ends in an error result, other calls are unaffected."""


class ServerUnavailableError(DownstreamError):
    """The server is not running: it did not start, or crashed and has not been restarted yet."""


class SessionForgottenError(ServerUnavailableError):
    """The server does not know our session any more, and has not taken the message."""


class UnansweredError(DownstreamError):
    """A call was sent and no usable answer came: it may have been carried out."""


class CallTimedOutError(UnansweredError):
    """The server did not answer within the call's deadline."""


class CallLostError(ServerUnavailableError, UnansweredError):
    """The server ended during a call."""


class BusyError(IronCurtainError):
    """A resource that the call needs exclusively is in use: refused, and may be repeated."""


class AuditError(IronCurtainError):
    """A record could not be written in time: no further call is forwarded."""


class KernelError(IronCurtainError):
    """A defect of the proxy: the call is denied."""

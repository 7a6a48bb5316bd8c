"""What stands between an AI agent and its tools."""

__version__ = "0.1.0"

"""The information point: an untrusted tool call becomes facts, or a reason why it cannot."""

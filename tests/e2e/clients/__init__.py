"""Programs that drive a proxy through the clients of other people's SDKs."""

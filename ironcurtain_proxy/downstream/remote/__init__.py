"""Servers over HTTP. Imported only where one is configured: the library is an extra.

- `session`: one session with such a server, also over the transport of 2024-11-05; its login.
- `streamable`: streamable HTTP.
- `exchange`: what both share: one HTTP request with its answer, messages sent and arrived.
- `network`: to which addresses connections are made, and the httpx2 transport over these.
- `logins`: credentials in headers, and the file of a login. `token_requests`: what an authorization
  server is asked. `renewal`: that it is asked by a process that outlives this one. `browser_login`:
  the login of a person, which imports the SDK.
"""

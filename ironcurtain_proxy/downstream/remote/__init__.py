"""Servers over HTTP. Imported only where one is configured: the library is an extra.

- `session`: one session with such a server, for `starting`, also over the transport of 2024-11-05.
- `streamable`: streamable HTTP.
- `exchange`: what both share: messages that are sent, and those that have arrived.
- `requests`: one HTTP request, and its answer.
- `network`: to which addresses connections are made, and the httpx2 transport over these.
- `logins`: credentials in headers, and the file of a login. `stored_login`: its token, renewed.
  `token_requests`: what an authorization server is asked. `browser_login`: the login of a person.
"""

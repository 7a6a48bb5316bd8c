"""Servers over HTTP. Imported only where one is configured: the library is an extra.

- `session`: one session with such a server, for `starting`.
- `streamable`: streamable HTTP. `legacy`: the transport before it. `sending`: what both share.
- `inbound`: received lines. `answering`: the answer to a request, among received lines.
- `requests`, `response`: one HTTP request, and its answer. `secrets`: credentials in headers.
- `logins`: the file of a login. `stored_login`: its token, renewed. `token_requests`: what an
  authorization server is asked. `browser_login`, `callback`: the login of a person.
- `pool`: the open connections. `network`: to which address one is made. `connection`: one of them.
- `response_parser`: the bytes of a response. `event_parser`: events in its body. `oauth_client`:
  the client that logins are made with.
"""

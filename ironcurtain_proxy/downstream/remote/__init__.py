"""Servers that are reached over HTTP. Imported only where there is one: its library is an extra.

- `session`: one life of such a server, as `starting` wants it.
- `streamable`: messages as requests and streams. `legacy`: the transport before it.
- `inbound`: what arrives, as lines. `answering`: which answer belongs to which request.
- `requests`: one HTTP request, and what may come back. `secrets`: what headers name.
- `logins`: the file of a login. `stored_login`: its token, renewed. `token_requests`: what an
  authorization server is asked. `browser_login`, `callback`: the login of a person.
- `network`: which connections are made, and to which address.
"""

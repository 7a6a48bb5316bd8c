"""The nouns that all folders share, frozen.

- An operation: `operation`, `request`, `case`, `path`, `command`, `place`, `json`, `composite`,
  `reply`.
- A decision: `policy`, `conditions`, `condition_reading`, `hosts`, `annotation`, `capability`,
  `argument_capability`, `judgement`, `decision`, `grounds`, `authorized`.
- A question: `escalation`, `question`, `grant`, `family`; `signing`, answers that are signed;
  `decider`, who settled it;
  `sentence`, names in its sentences.
- Statements for a database: `sql`.
- A server: `server`; its tools' `input_schema`; over HTTP `remote`, and the `addresses` that it may
  have.
- What a server is held to: `pinning`.
- `origin`: who named the target of a call.
- The rest: `audit`, `timeline`, `view`, `walls`, `opening`; `steering`, names of files that steer
  clients.
- `caller`: who makes a request, where the request itself says so.
- What crosses: `asked`, requests taken apart; `crossing`, the parameters that reach a server;
  `asking`, answers that ask for something.
- `boot_moment`: a moment that no change of the clock moves.
- `conventions`: OpenTelemetry's names for what a record tells of.
- `vocabulary`: long lists of words, written as text.
"""

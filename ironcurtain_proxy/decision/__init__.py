"""The policy's decision on a call, as deterministic functions without I/O.

- `authorizer`: the one question, may this be done? `combining`: several answers become one.
- `invariants`, `rules`, `matching`, `prior_consent`: what answers.
- `floors`: layers that only restrict.
- `questions`: a server's own questions to the user. `completions`: completions.
- `containment`: the rules that keep calls for reviewers.
- `breaker`: the circuit breaker. `explanation`: why a decision is what it is.
"""

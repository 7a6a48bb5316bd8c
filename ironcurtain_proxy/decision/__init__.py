"""The policy's decision on a call, as deterministic functions without I/O.

- `authorizer`: the one question, may this be done? Also for completions and restricting layers.
- `invariants`, `rules`, `prior_consent`: what answers, and how several answers become one;
  a server's own questions to the user.
- `containment`: the rules that keep calls for reviewers.
- `breaker`: the circuit breaker. `explanation`: why a decision is what it is.
"""

"""The policy's decision on a call, as deterministic functions without I/O.

- `authorizer`: the one question, may this be done? First the structural invariants. Also for
  completions and restricting layers, for the rules that keep calls for reviewers, and for a
  server's own questions to the user.
- `rules`: what answers, and how several answers become one.
- `breaker`: the circuit breaker. `explanation`: why a decision is what it is.
"""

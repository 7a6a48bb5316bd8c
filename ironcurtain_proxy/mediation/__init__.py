"""The life of a call, from its arrival to its reply.

- `mediator`: all steps; begin to read here.
- `question`, `refusals`, `journal`: the question that is put, calls that do not go, the records.
- `containing`: points of the workspace before calls, and the look after them.
- `plans`, `own_tools`: announced plans, and the proxy's own tools.
- Also: `judge`, `unattended`.
"""

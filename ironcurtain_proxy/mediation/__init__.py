"""The life of a call, from its arrival to its reply.

- `calls`: the entry for the agent's calls. `mediator`: all steps of a call; begin to read here.
- `judge`: the decision of policy and overlay together. `in_force`: the current policy;
- `journal`: the records.
- `server_questions`: questions of servers to the user, and requests that are not served.
- `operations`: resources, prompts, completions and subscriptions.
- `outcome`: answers of servers. `results`: the changes of answers that the operator wants.
- `escalated`: a call with a question. `question`: the question itself;
  `first_reason`: what the call does, in its first sentences. `refusals`: a call that was
  not approved. `unattended`: a notice that no reviewer can be reached.
- `containing`: a point of the workspace before a call, and an inspection after it.
  `committing`: the changes of a command of our own shell come in.
- `plans`, `own_tools`: announced plans, and the proxy's own tools.
- `session`: these parts, joined for one session. `rehearsal`: the same judgement for `explain`.
"""

"""The life of a call, from its arrival to its reply.

- `calls`: what the agent's calls are handed to. `mediator`: all steps; begin to read here.
- `judge`: policy and overlay, asked together. `in_force`: the policy that they ask;
  `policy_changes`: what becomes of calls on their way when it changes.
- `journal`: the records.
- `server_questions`: what servers ask of the user, and requests that nobody serves.
- `operations`: resources, prompts, completions and subscriptions.
- `outcome`: answers of servers. `results`: what is changed of them.
- `escalated`, `question`, `refusals`, `unattended`: a call that somebody is asked about, what is
  asked, what becomes of a call that is not approved, and who hears that nobody reviews.
- `containing`: points of the workspace before calls, and the look after them.
- `plans`, `own_tools`: announced plans, and the proxy's own tools.
- `session`: these parts, joined for one session. `rehearsal`: the same judgement for `explain`.
"""

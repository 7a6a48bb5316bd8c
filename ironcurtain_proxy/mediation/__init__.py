"""The life of a call, from its arrival to its reply.

- `calls`: the entry for the agent's calls, and the proxy's own tools. `mediator`: all steps of a
  call; begin to read here.
- `judge`: the policy's decision joined with the operator's other reasons to ask, and with secrets
  that would leave.
- `journal`: the records, and a notice that no reviewer can be reached.
- `operations`: resources, prompts, completions and subscriptions; questions of servers.
- `outcome`: how calls end: refused, unanswered, answered, withheld or with a changed answer.
- `escalated`: a call with a question, and which answers may settle it. `question`: the question
  itself, and its first sentences.
- `containing`: a point of the workspace before a call, and an inspection after it. `committing`:
  the changes of a command of our own shell come in.
- `session`: these parts, joined for one session; announced plans.
"""

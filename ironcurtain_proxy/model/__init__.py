"""The nouns that all folders share, frozen. Pure.

- A call: `call`, `request`, `case`, `path`, `command`, `place`, `json`, `composite`, `progress`,
  `reply`.
- A decision: `policy`, `annotation`, `capability`, `argument_capability`, `judgement`, `decision`,
  `grounds`, `authorized`.
- A question: `escalation`, `question`, `grant`.
- The rest: `audit`, `server`, `timeline`, `walls`, `opening`.
- Also: `boot_moment`, `asking`, `crossing`.
"""

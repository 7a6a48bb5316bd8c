"""Questions besides the policy's: profile, approval mode, safety level, containment.

- `judging`, `overlay`: the policy's decision and the other origins, joined into one judgement.
- `capabilities`, `modes`, `safety`, `subject`: what each origin looks at.
- `secrets`: secrets that would leave.
- `containment`: whether the sandbox and the timeline may answer in a reviewer's place.
- `lifecycle`, `settlements`: the states of an open question, and how the record names its end.
"""

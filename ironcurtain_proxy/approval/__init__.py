"""Questions besides the policy's: profile, approval mode, safety level, containment.

- `judging`: the policy's decision and the other origins, joined; secrets that would leave.
- `overlay`: profile, approval mode and safety level. `capabilities`: what a profile looks at.
- `containment`: whether the sandbox and the timeline may answer in a reviewer's place.
- `settlements`: the states of an open question, and how the record names its end.
"""

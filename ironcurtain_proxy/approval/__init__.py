"""Questions besides the policy's: profile, approval mode, safety level, containment.

- `overlay`: profile, approval mode and safety level. `capabilities`: what a profile looks at.
- `containment`: whether the sandbox and the timeline may answer in a reviewer's place.
"""

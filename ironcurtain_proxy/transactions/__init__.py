"""A command in a view of its own: what it changed reaches the workspace only by our own hand.

This package knows nothing of MCP, of the policy, or of who asked for the command.

- `availability`: whether a workspace can have views, and where their directories lie.
- `transaction`: the life of one view, and what a killed process left. `journal`: what a commit
  writes down, so that it outlives a power cut. `merging`: changes of git that both sides made.
- `mounting`: the program that makes the view and runs the command. `forking`: the process that is
  ready to do so, and how it is told.
- `walking`, `control`: what the command changed, sorted. `moving`: which files it moved.
- `applying`, `files`: the steps that bring it into the workspace and take it out again.
- `changes`: the values that these share.
"""

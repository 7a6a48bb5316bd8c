"""What makes an approval under conditions undoable: a copy of what a call may touch, and a watch.

It does not know what a call is: it is given paths. Nothing it reads is trusted: links are not
followed, and nothing that a repository configures is run.
"""

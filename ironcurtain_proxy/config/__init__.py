"""What the operator writes, read and checked (PAP): settings, policy, annotations, lists, servers.

A file with anything in it that we do not know is refused, with its JSON path and the nearest right
word: an ignored condition would make an allow rule match everything.
"""

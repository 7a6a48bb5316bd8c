"""Where the targets of calls come from: the user's words, the user's own records, results.

- `keys`: one spelling for all spellings of an address, a URL, a path or a name.
- `book`: what one session has heard and read, and the origin of each target of a call.
"""

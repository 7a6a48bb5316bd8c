"""Reports: a page, and the counts of a fleet.

- `plots`: the drawing of a page.
- `day`: counts of the audit log's calls, and these as a part of a page.
- `fleet`: counts of the records of many machines, as text.
"""

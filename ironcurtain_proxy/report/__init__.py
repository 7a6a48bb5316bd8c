"""Reports: a page, and the counts of a fleet.

- `page`, `plots`: the drawing of a page.
- `fleet`: counts of the records of many machines, as text.
- `day`: counts of the audit log's calls, and these as a part of a page.
"""

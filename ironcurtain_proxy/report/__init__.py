"""Reports: a page, and the counts of a fleet.

- `plots`: the drawing of a page.
- `fleet`: counts of the audit log's calls as a part of a page, and of many machines' as text.
"""

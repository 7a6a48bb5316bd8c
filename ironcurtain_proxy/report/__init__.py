"""A report as an HTML page.

- `page`, `plots`: the drawing of a page.
- `day`: counts of the audit log's calls, and these as a part of a page.
"""

"""A report as an HTML page.

- `page`, `plots`, `stretches`: the drawing of a page.
- `day`: counts of the audit log's calls. `calls_part`: these, as a part of a page.
"""

"""A page for a person about what happened.

- `page`, `plots`, `stretches`: how a page is drawn, whatever it is about.
- `day`: what the calls of the audit log amount to. `calls_part`: that, as a part of a page.
"""

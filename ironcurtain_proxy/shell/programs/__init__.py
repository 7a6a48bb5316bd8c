"""What is known of each program. Pure.

- `programs`: all rules by program. `effects`: what programs that do more than read do.
- `wrappers`, `scripts`: programs that run programs, and scripts of sed and awk.
- By subject: `apple`, `basics`, `cloud`, `containers`, `git`, `network`, `packages`, `services`,
  `sql`.
"""

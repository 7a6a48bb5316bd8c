"""Ed25519 keys as SSH has them.

- `keys`: public keys and their fingerprints, the check of a signature, and private keys in a file
  or with an agent.
"""

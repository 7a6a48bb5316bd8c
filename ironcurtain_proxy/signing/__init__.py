"""Keys of persons: Ed25519 keys as SSH has them, and passkeys.

- `keys`: public keys and their fingerprints, the check of a signature, and private keys in a file
  or with an agent.
- `passkeys`: passkeys (WebAuthn), and the check of an answer's signature by either kind of key.
"""

"""Shell commands: what each part of one can do, and what an approval of one covers."""

"""How a server process is confined."""

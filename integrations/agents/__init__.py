"""specedit inside agent frameworks: models that a local server answers for, and a server of tools."""

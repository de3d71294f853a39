"""Forms of an executable outside memory: binary, text, Python, HTML."""

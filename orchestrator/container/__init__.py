"""Container images: the same image on every node, and the code in an image.

On this host the docker SDK (local.py) sends a password in the request alone. On nodes the engine's
command line (engine.py) works through sudo, SSH and steps.
"""

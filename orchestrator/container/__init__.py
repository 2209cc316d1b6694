"""Container images: the same image on every node, and the code in an image.

Two ways lead to an engine. On this host it is the docker SDK (local.py): it takes a password in the
request alone, in no file and no argument. On nodes it is the engine's command line (engine.py): it
works through sudo, SSH and a step of an allocation.
"""

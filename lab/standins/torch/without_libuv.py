"""Debian builds torch without libuv, and torchrun asks for it wherever nobody says otherwise."""

from typing import Any

from torch._C._distributed_c10d import TCPStore as AnyTCPStore


class TCPStore(AnyTCPStore):
    """The store that torch.distributed offers in these images, never with libuv."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **{**options, "use_libuv": False})

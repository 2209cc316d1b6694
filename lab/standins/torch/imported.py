"""Imports what a rank and torchrun import, so that the image has it compiled; run while the base is
made."""

# ruff: noqa: F401
import torch
import torch.distributed.elastic.rendezvous.c10d_rendezvous_backend
import torch.distributed.elastic.rendezvous.dynamic_rendezvous
import torch.distributed.elastic.rendezvous.static_tcp_rendezvous
import torch.distributed.run

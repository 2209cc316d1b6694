"""The training program of the stand-in images: real torch, real ranks that exchange gradients
through gloo, a small network."""

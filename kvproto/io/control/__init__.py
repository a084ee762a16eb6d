"""The control plane: frames over ZeroMQ sockets that never block."""

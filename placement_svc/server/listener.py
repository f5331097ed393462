"""The listening socket of a service that stops."""

import socket
import struct
import sys
from array import array

SO_ATTACH_FILTER = 26
"""The number of this socket option of Linux, which Python does not name."""

_DROP_SYN = (
    (0x30, 0, 0, 13),  # load the flags of the TCP header
    (0x54, 0, 0, 0x12),  # keep SYN and ACK
    (0x15, 0, 1, 0x02),  # if only SYN is set:
    (0x06, 0, 0, 0),  # drop the packet
    (0x06, 0, 0, 0x7FFFFFFF),  # else accept all of it
)
"""A classic BPF program: the instruction, two relative jumps and a constant on each line."""


def ignore_new_clients(listener: socket.socket) -> None:
    """Let the kernel drop the first packet (SYN) of each new connection, for all who hold the socket.

    The kernel resets a connection that it has established between the last `accept` and the end of a
    listening socket. If no connection can begin meanwhile, none is lost. A client whose packet was dropped
    sends it again after a second, and then connects to the next service on the port or is refused. Only
    Linux can do this; elsewhere, such a connection may be reset.
    """
    if sys.platform != "linux":
        return
    instructions = array("B", b"".join(struct.pack("HBBI", *instruction) for instruction in _DROP_SYN))
    address, _ = instructions.buffer_info()
    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(_DROP_SYN), address))

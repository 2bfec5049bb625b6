"""Refuse to reach any other machine. Python runs this at start-up where PYTHONPATH holds this folder."""

import ipaddress
import os
import sys


def refuse_other_machines(event, arguments):
    if event in ("socket.connect", "socket.sendto"):
        _, address = arguments
        host = address[0] if isinstance(address, tuple) else "localhost"  # else the path of a Unix socket
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    else:
        return
    if not is_loopback(host):
        raise ConnectionRefusedError(f"no network here: {host} refused")


def is_loopback(host):
    if host in (None, "", "localhost", b"localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


sys.addaudithook(refuse_other_machines)

kind = os.environ.get("ROUNDING_NOISE")
if kind and "--here" not in sys.orig_argv:  # see tools.rounding; nbval itself, in tools.alone, computes nothing
    import rounding_noise

    rounding_noise.Noise(kind).__enter__()

"""A connection that speaks RESP3, and waiting with a deadline."""

import os
import socket
import time

PATIENCE_S = float(os.environ.get("TETHER_PATIENCE", "60"))


def eventually(what: str, check):
    """What `check` returns, once that is true."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < end, f"{what} did not come: {found!r}"
        time.sleep(0.05)


class Connection:
    """Keeps pushes apart from replies."""

    def __init__(self, port: int):
        self.stream = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.file = self.stream.makefile("rb")
        self.pushes: list = []
        self.run("HELLO 3")

    def close(self):
        self.file.close()
        self.stream.close()

    def send(self, command: str):
        self.stream.sendall(command.encode() + b"\r\n")

    def read(self):
        line = self.file.readline()
        assert line, "the server has closed the connection"
        kind, rest = line[:1], line[1:-2].decode()
        if kind in b"+-:(,#":
            return int(rest) if kind == b":" else ("-" if kind == b"-" else "") + rest
        if kind == b"_" or rest == "-1":
            return None
        if kind in b"$=":
            return self.file.read(int(rest) + 2)[:-2].decode()
        items = [self.read() for _ in range(int(rest) * (2 if kind == b"%" else 1))]
        if kind == b">":
            self.pushes.append(items)
        return items

    def reply(self):
        while True:
            count = len(self.pushes)
            frame = self.read()
            if len(self.pushes) == count:
                return frame

    def run(self, command: str):
        self.send(command)
        return self.reply()

    def push(self):
        while not self.pushes:
            self.read()
        return self.pushes.pop(0)

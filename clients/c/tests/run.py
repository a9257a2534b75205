#!/usr/bin/env python3
"""Runs programs against a server with the module: run.py SERVER MODULE "PROGRAM WORDS.." ..

Each gets the server's port as its last word, and as TETHER_PORT. One whose name begins with
`example` must say that it had its lock.
"""

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Of one program, under valgrind on a busy machine.
WITHIN = [str(Path(__file__).resolve().parents[3] / "scripts" / "within.sh"), "600"]
EXAMPLE = re.compile(r"held with token \d+\nworking\nreleased\n")


def start(server, module, folder):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [server, "--port", str(port), "--dir", folder, "--save", "", "--loadmodule", module]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), 60) as client:
                client.sendall(b"PING\r\n")
                if client.recv(7) == b"+PONG\r\n":
                    return process, port
        except OSError:
            if process.poll() is not None:
                sys.exit("the server did not start")
        time.sleep(0.01)
    process.kill()
    sys.exit("the server does not answer")


def main(server, module, programs):
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        process, port = start(server, str(Path(module).resolve()), folder)
        try:
            environment = {**os.environ, "TETHER_PORT": str(port)}
            for program in programs:
                words = [*WITHIN, *shlex.split(program), str(port)]
                ran = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=environment)
                is_example = "/example-" in program
                is_right = ran.returncode == 0 and (not is_example or EXAMPLE.fullmatch(ran.stdout))
                print(f"{program}: {'ok' if is_right else 'FAILED'}", flush=True)
                if not is_right:
                    print(ran.stdout)
                passed, failed = passed + bool(is_right), failed + (not is_right)
        finally:
            process.kill()
            process.wait()
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {passed} passed; {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

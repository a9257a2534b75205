"""What the programs of this folder have in common: they read lines, have their client send what these say, and print the
replies (see tests/clients/check.py)."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

HOST, PORT = sys.argv[1], int(sys.argv[2])
PROTOCOL = int(sys.argv[3])


def text(reply):
    if reply is None:
        return "nil"
    if isinstance(reply, bytes):
        return reply.decode()
    if isinstance(reply, bool):
        return "OK"
    return str(reply)


def refused(error):
    return f"! {type(error).__name__} {error}".replace("\n", " ")


def words_of(line, number=0):
    return line.replace("%", str(number)).split()


def answer(call, words):
    try:
        return text(call(*words))
    except Exception as error:
        return refused(error)


def serve(version, call, holder):
    """`call` is the client's way to send a command as it comes; `holder()` makes a connection that can hold a lock: its way
    to send a command, and the token."""
    print(version, flush=True)
    held = None
    for line in sys.stdin:
        verb, _, rest = line.strip().partition(" ")
        if verb == "width":
            print(8)
        elif verb == "call":
            print(answer(call, words_of(rest)))
        elif verb == "pool":
            for said in together(call, rest):
                print(said)
        elif verb == "lines":
            try:
                held, token = holder()
                print(text(token))
            except Exception as error:
                print(refused(error))
        elif verb == "holder":
            print(answer(held, words_of(rest)))
        sys.stdout.flush()


def together(call, rest, threads=8):
    all_have_asked = Barrier(threads)

    def ask(number):
        said = answer(call, words_of(rest, number))
        all_have_asked.wait()
        return said

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(ask, range(threads)))


async def serve_asynchronously(version, call, holder):
    async def answer(call, words):
        try:
            return text(await call(*words))
        except Exception as error:
            return refused(error)

    print(version, flush=True)
    held = None
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        verb, _, rest = line.strip().partition(" ")
        if verb == "width":
            print(8)
        elif verb == "call":
            print(await answer(call, words_of(rest)))
        elif verb == "pool":
            for said in await asyncio.gather(*(answer(call, words_of(rest, number)) for number in range(8))):
                print(said)
        elif verb == "lines":
            try:
                held, token = await holder()
                print(text(token))
            except Exception as error:
                print(refused(error))
        elif verb == "holder":
            print(await answer(held, words_of(rest)))
        sys.stdout.flush()

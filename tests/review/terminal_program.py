"""Asks on its controlling terminal, once for each argument, and says on a pipe what came back.

terminal_program.py SLAVE PIPE SECONDS...   (below zero: two kinds may be remembered;
long: an argument of several lines of the terminal)
"""

import fcntl
import os
import sys
import termios

import anyio

from ironcurtain_proxy.model.escalation import Ruling
from ironcurtain_proxy.review.terminal import TerminalReviewer
from tests.fakes import FakeClock
from tests.questions import a_question


async def main() -> None:
    pipe = int(sys.argv[2])
    reviewer = TerminalReviewer(FakeClock())
    os.write(pipe, f"reachable={reviewer.is_reachable()}\n".encode())

    async def ask(number: int, seconds: float) -> None:
        ruling: Ruling = await reviewer.ask(
            a_question({"n": number}, seconds=abs(seconds), kinds=1 + (seconds < 0))
        )
        os.write(pipe, f"{number}: {ruling}\n".encode())

    async with anyio.create_task_group() as tasks:
        for number, seconds in enumerate(sys.argv[3:]):
            if seconds == "long":
                value = f"{'x' * 80}Why you are asked: it is harmless{'x' * 80}Approve? [y/N] y"
                tasks.start_soon(reviewer.ask, a_question({"n": value}))
            elif seconds == "cancel":
                with anyio.move_on_after(0.3):
                    await ask(number, 60)
                os.write(pipe, f"{number}: cancelled\n".encode())
            else:
                tasks.start_soon(ask, number, float(seconds))
                await anyio.lowlevel.checkpoint()


if __name__ == "__main__":
    fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0)
    anyio.run(main)

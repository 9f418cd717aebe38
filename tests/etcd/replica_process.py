"""One replica as a process of its own: `replica_process.py ENDPOINT NAME`; it says when it is master."""

from __future__ import annotations

import asyncio
import sys

from replica_recorder import replicating


async def main(endpoint: str, name: str) -> None:
    async with replicating(endpoint, name) as one:
        await one.masters(60)
        print("master", flush=True)
        # Nobody ends it but its parent, or that one's end.
        await asyncio.to_thread(sys.stdin.read)


asyncio.run(main(sys.argv[1], sys.argv[2]))

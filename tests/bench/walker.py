"""The rival: fetches every resource that links lead to, breadth first, with aiohttp.

    walker.py URL CONCURRENCY [EXCLUDED PREFIX…]

It parses each answer and follows every `@odata.id` in it, no more. Prints one line of JSON.
"""

import asyncio
import json
import sys

import aiohttp


def links(value, found):
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "@odata.id" and isinstance(inner, str):
                found.append(inner)
            else:
                links(inner, found)
    elif isinstance(value, list):
        for inner in value:
            links(inner, found)


async def walk(base, concurrency, excluded):
    seen, statuses, size = set(), {}, 0
    queue = asyncio.Queue()

    def offer(uri):
        uri = uri.partition("#")[0].rstrip("/")
        if uri.startswith("/redfish/v1") and not uri.startswith(excluded) and uri not in seen:
            seen.add(uri)
            queue.put_nowait(uri)

    async def worker(session):
        nonlocal size
        while True:
            uri = await queue.get()
            async with session.get(base + uri) as answer:
                body = await answer.read()
            statuses[answer.status] = statuses.get(answer.status, 0) + 1
            size += len(body)
            if answer.status == 200:
                found = []
                links(json.loads(body), found)
                for link in found:
                    offer(link)
            queue.task_done()

    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:
        offer("/redfish/v1")
        workers = [asyncio.create_task(worker(session)) for _ in range(concurrency)]
        done = asyncio.create_task(queue.join())
        # A worker ends only by an error, which must not leave the walk waiting for ever.
        await asyncio.wait([done, *workers], return_when=asyncio.FIRST_COMPLETED)
        broken = [task for task in workers if task.done()]
        for task in workers:
            task.cancel()
        if broken:
            broken[0].result()
    return {"requests": sum(statuses.values()), "statuses": statuses, "bytes": size}


def main():
    base, concurrency, *excluded = sys.argv[1:]
    print(json.dumps(asyncio.run(walk(base, int(concurrency), tuple(excluded) or ("\0",)))))


if __name__ == "__main__":
    main()

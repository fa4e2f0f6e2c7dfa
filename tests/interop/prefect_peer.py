"""Prefect's messaging as the other side of the interoperability suite.

PREFECT_REDIS_MESSAGING_URL says where the server is. What is published or handled is written to a file, one JSON object
a line: {"body": hexadecimal, "headers": {...}}.

    publish TOPIC FILE COUNT          publishes COUNT messages
    consume TOPIC GROUP FILE COUNT    handles COUNT messages and stops
    work TOPIC GROUP NAME FILE        handles messages, slowly, until it is killed
    fail TOPIC GROUP COUNT            fails every message until COUNT are dead letters
    duplicate TOPIC FILE              publishes the lines of FILE with deduplication by "id"
"""

import asyncio
import json
import logging
import sys
from datetime import timedelta

from prefect.server.utilities.messaging import StopConsumer
from prefect_redis.client import get_async_redis_client
from prefect_redis.messaging import Cache, Consumer, Publisher

SHAPES = [
    lambda n: f"text {n}",
    lambda n: json.dumps({"n": n, "list": [1, None, "x"]}),
    lambda n: f"größe → 漢字 🦀 {n}",
    lambda n: "",
    lambda n: f"line one\r\nline two\x00{n}",
]


def line(body, headers):
    data = body.encode() if isinstance(body, str) else body
    return json.dumps({"body": data.hex(), "headers": headers}) + "\n"


async def publish(topic, path, count):
    with open(path, "w", encoding="utf-8") as out:
        async with Publisher(topic, cache=Cache(), batch_size=50) as publisher:
            for n in range(int(count)):
                body = "x" * (1 << 20) if n == 7 else SHAPES[n % len(SHAPES)](n)
                headers = {"id": f"m-{n}", "n": n, "ünïcode": "→", "deep": {"list": [1, None, True]}}
                await publisher.publish_data(body.encode(), headers)
                out.write(line(body, headers))


async def duplicate(topic, path):
    with open(path, encoding="utf-8") as lines:
        async with Publisher(topic, cache=Cache(), deduplicate_by="id") as publisher:
            for message in map(json.loads, lines):
                await publisher.publish_data(bytes.fromhex(message["body"]), message["headers"])


async def consume(topic, group, path, count):
    left = int(count)
    with open(path, "w", encoding="utf-8") as out:

        async def handle(message):
            nonlocal left
            out.write(line(message.data, message.attributes))
            left -= 1
            if left == 0:
                raise StopConsumer(ack=True)

        await Consumer(topic, group=group, read_batch_size=20).run(handle)


async def work(topic, group, name, path):
    with open(path, "w", encoding="utf-8") as out:

        async def handle(message):
            await asyncio.sleep(0.005)
            out.write(line(message.data, message.attributes))
            out.flush()

        idle = timedelta(seconds=3)
        consumer = Consumer(topic, group=group, name=name, min_idle_time=idle, read_batch_size=10)
        await consumer.run(handle)


async def fail(topic, group, count):
    async def handle(message):
        raise ValueError("cannot be handled")

    logging.disable(logging.CRITICAL)
    consumer = Consumer(topic, group=group, min_idle_time=timedelta(0), max_retries=1)
    run = asyncio.create_task(consumer.run(handle))
    client = get_async_redis_client()
    while await client.scard("dlq") < int(count) and not run.done():
        await asyncio.sleep(0.02)
    run.cancel()


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))

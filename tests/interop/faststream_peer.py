"""FastStream as the other side of the interoperability suite.

REDIS_URL says where the server is. What is published or handled is written to a file, one JSON object a line:
{"body": hexadecimal, "headers": {...}}.

    publish STREAM FILE COUNT FORMAT        publishes COUNT messages, in the `binary` or the `json` envelope
    consume STREAM GROUP NAME FILE COUNT    handles COUNT messages from the beginning and stops
    work STREAM GROUP NAME FILE             handles messages, slowly, until it is killed
"""

import asyncio
import json
import logging
import os
import sys

from faststream import AckPolicy
from faststream.redis import RedisBroker, RedisStreamMessage, StreamSub
from faststream.redis.parser import BinaryMessageFormatV1
from faststream.redis.parser.message import MessageFormat

SHAPES = [
    lambda n: f"text {n}",
    lambda n: {"n": n, "list": [1, None, "x"]},
    lambda n: f"größe → 漢字 🦀 {n}",
    lambda n: "",
    lambda n: bytes(range(256)) + n.to_bytes(4, "big"),
    lambda n: None,
]


class JsonEnvelope(MessageFormat):
    """The envelope that FastStream wrote by default before the binary one, and still reads."""

    @classmethod
    async def encode(cls, **message):
        built = await cls.build(**message)
        return json.dumps({"data": built.data.decode(), "headers": built.headers}).encode()

    @classmethod
    def parse(cls, data):
        return BinaryMessageFormatV1.parse(data)


FORMATS = {"binary": BinaryMessageFormatV1, "json": JsonEnvelope}


def broker(**options):
    return RedisBroker(os.environ["REDIS_URL"], logger=None, **options)


def line(body, headers):
    return json.dumps({"body": body.hex(), "headers": headers}) + "\n"


async def publish(stream, path, count, envelope):
    with open(path, "w", encoding="utf-8") as out:
        async with broker(message_format=FORMATS[envelope]) as redis:
            for n in range(int(count)):
                body = "x" * (1 << 20) if n == 7 else SHAPES[n % len(SHAPES)](n)
                if envelope == "json" and isinstance(body, bytes):
                    body = "no bytes"
                given = {"n": str(n), "ünïcode": "größe →"}
                call = {"correlation_id": f"c-{n}", "headers": given, "reply_to": "answers" if n % 2 else ""}
                await redis.publish(body, stream=stream, **call)
                built = await BinaryMessageFormatV1.build(message=body, **call)
                out.write(line(built.data, built.headers))


async def subscribe(stream, each):
    redis = broker()

    @redis.subscriber(stream=stream, ack_policy=AckPolicy.NACK_ON_ERROR, no_reply=True)
    async def handle(message: RedisStreamMessage):
        await each(message)

    async with redis:
        await redis.start()
        while not each.stopped:
            await asyncio.sleep(0.02)


class Handled:
    """What was handled, in a file."""

    def __init__(self, out, left, pause):
        self.out, self.left, self.pause, self.stopped = out, left, pause, False

    async def __call__(self, message):
        await asyncio.sleep(self.pause)
        self.out.write(line(message.body, message.headers))
        self.out.flush()
        self.left -= 1
        self.stopped = self.left == 0


async def consume(stream, group, name, path, count):
    with open(path, "w", encoding="utf-8") as out:
        await subscribe(StreamSub(stream, group=group, consumer=name, last_id="0"), Handled(out, int(count), 0))


async def work(stream, group, name, path):
    with open(path, "w", encoding="utf-8") as out:
        await subscribe(StreamSub(stream, group=group, consumer=name, max_records=10), Handled(out, -1, 0.005))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))

"""Generate from Python: two requests with chains of their own in one batch, on the fake model."""

from gencli.core.events import Finish, Token
from gencli.core.request import Limits, Request
from gencli.engine import Engine
from gencli.models.fake import FakeRunner
from gencli.text.tokenizer import ByteTokenizer
from processors import Chain, derive

tokenizer = ByteTokenizer()
engine = Engine(FakeRunner(), tokenizer)
for key, chain in enumerate(["temperature=0.7 | top_p=0.9", "repetition=1.3 | temperature=1.5 | min_p=0.1"]):
    engine.submit(
        Request(
            id=str(key),
            prompt_ids=tuple(tokenizer.encode("Hello")),
            chain=Chain.parse(chain),
            seed=derive(42, key),
            limits=Limits(max_tokens=16),
        )
    )
texts = {"0": "", "1": ""}
for event in engine.run():
    if isinstance(event, Token):
        texts[event.request] += event.text  # a terminal would print it here
    elif isinstance(event, Finish):
        print(f"{event.request}: {texts[event.request]!r} ({event.reason}, {event.completion_tokens} tokens)")

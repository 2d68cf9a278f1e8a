"""From what was typed to the requests that the engine gets: nothing is lost on the way."""

from gencli.config.job import make_job, make_requests
from gencli.config.settings import FLAG, resolve
from gencli.core.request import Drafting, Limits, Request, Stops
from gencli.text.tokenizer import ByteTokenizer
from processors.chain import Chain
from processors.rng import derive


class MarkedTokenizer(ByteTokenizer):
    """Puts a BOS before a text, and has a chat template with one."""

    def encode(self, text, *, special=True):
        return [self.bos_id] * special + super().encode(text)

    def render_chat(self, messages, **kwargs):
        return "<bos>" + "".join(f"[{message['role']}]{message['content']}" for message in messages)


def requests(prompts, **flags):
    return list(make_requests(make_job(resolve((FLAG, flags))), prompts, MarkedTokenizer()))


def test_every_limit_stop_and_draw_arrives():
    flags = {
        "seed": "3",
        "sampler": "multinomial",
        "n": "2",
        "top_k": "5",
        "max_tokens": "9",
        "max_time": "1.5",
        "stop": [r"\n", "b"],
        "stop_id": ["7"],
        "stop_regex": ["c+"],
        "include_stop": True,
        "loop": "4",
    }
    first, second = requests(["hi", "yo"], **flags)
    assert second == Request(
        id="2",
        prompt_ids=(256, *b"yo"),
        chain=Chain.of({"top_k": 5}),
        seed=derive(3, 1),
        draw="multinomial",
        n=2,
        stops=Stops(ids=(7,), strings=("\n", "b"), patterns=("c+",), include=True, loop=4),
        limits=Limits(9, 1.5),
        drafting=Drafting("none"),
    )
    assert (first.id, first.seed) == ("1", derive(3, 0))


def test_a_chat_prompt_has_what_its_template_says_and_no_more():
    (request,) = requests(["hi"], chat=True, system="be kind")
    assert bytes(request.prompt_ids) == b"<bos>[system]be kind[user]hi"

"""From what was typed to the requests that the engine gets: nothing is lost on the way."""

import pytest

from gencli.config.job import make_job, make_requests, notices
from gencli.config.settings import CHAT_DEFAULT, FLAG, resolve
from gencli.core.request import Drafting, Limits, Request, Stops
from gencli.errors import UsageError
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
        "seed": "3", "sampler": "multinomial", "n": "2", "top_k": "5", "max_tokens": "9", "max_time": "1.5",
        "stop": [r"\n", "b"], "stop_id": ["7"], "stop_regex": ["c+"], "include_stop": True, "loop": "4",
    }  # fmt: skip
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

    (request,) = requests(["hi"], chat=True, system="be kind")
    assert bytes(request.prompt_ids) == b"<bos>[system]be kind[user]hi"


def test_stages_that_contradict_each_other_are_refused_by_the_names_of_their_options():
    for flags, said in [
        ({"mirostat": "2", "top_k": "5"}, "`top_k` and `mirostat`: mirostat and top_k contradict each other"),
        ({"mirostat": "2", "adaptive_target": "0.3"}, "mirostat and adaptive_p"),
        ({"mirostat": "2", "temperature": "0.5", "temperature_last": True}, "mirostat runs before"),
        ({"dynatemp_min": "1", "dynatemp_max": "2", "temperature": "0.5"}, "`temperature` and"),
        ({"dynatemp_min": "1"}, "has a min, but no max"),
        ({"mirostat_tau": "3"}, "`mirostat_tau` is given, but the stage mirostat is off."),
        ({"smoothing_curve": "2"}, "`smoothing_curve` is given, but the stage smoothing is off."),
        ({"beams": "2", "mirostat": "2"}, "`mirostat` would have no effect"),
    ]:
        with pytest.raises(UsageError) as caught:
            make_job(resolve((FLAG, flags)))
        assert said in str(caught.value), flags


def test_stages_that_change_nothing_give_way_with_a_notice():
    weaker = ("model", {"top_k": "20", "temperature": "0.6"})
    job = make_job(resolve(weaker, (FLAG, {"mirostat": "2"})))
    assert (str(job.chain), [*notices(job, ["hi"])]) == (
        "temperature=0.6 | mirostat=2",
        ["model `top_k` is left out beside `mirostat`: mirostat alone decides how many tokens are left."],
    )
    job = make_job(resolve(("preset", {"mirostat": "2"}), (FLAG, {"top_k": "20"})))
    assert str(job.chain) == "top_k=20"
    of_chat = (CHAT_DEFAULT, {"temperature": "0.8", "top_k": "40", "min_p": "0.05"})
    assert [*notices(make_job(resolve(of_chat, (FLAG, {"mirostat": "2"}))), ["hi"])] == [
        "Of the preset chat min_p, top_k are left out beside `mirostat`: mirostat alone decides how many "
        "tokens are left."
    ]

    flags = {"temperature": "0", "mirostat": "2", "top_k": "5", "edt": "1", "dynatemp_range": "1"}
    job = make_job(resolve((FLAG, flags)))
    assert (str(job.chain), [*notices(job, ["hi"])]) == (
        "",
        ["The draw is greedy, so these stages change nothing: dynamic_temperature, edt, top_k, mirostat."],
    )

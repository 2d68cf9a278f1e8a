"""From what was typed to the requests that the engine gets: nothing is lost on the way."""

import json
import shutil

import pytest

from gencli.config.job import SamplingParams, make_job, make_requests, notices, params_layer
from gencli.config.layers import gather
from gencli.config.settings import CHAT_DEFAULT, FLAG, resolve
from gencli.core.request import Drafting, Limits, Request, Stops
from gencli.core.tree_shapes import StaticTree
from gencli.errors import UsageError
from gencli.models.files.local_models import bundled_folder
from gencli.text.tokenizer import ByteTokenizer
from processors.chain import Chain
from processors.registry import builtin_registry
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


def test_a_draft_tree_is_a_text_or_a_list_of_paths():
    tree = StaticTree(((0,), (1,), (0, 0)))
    for paths in ("[[0],[1],[0,0]]", [[0], [0, 0], [1]], ((0,), (1,), (0, 0))):
        values = {"draft": "ngram", "draft_tree": paths}
        of_flags, of_params = (FLAG, values), params_layer(SamplingParams(**values), builtin_registry())
        for layer in (of_flags, of_params):
            assert make_job(resolve(layer)).drafting.tree == tree, (paths, layer)
    for wrong in (5, [["a"]], [0], [[2]]):
        for read in (lambda **values: resolve((FLAG, values)), SamplingParams):
            with pytest.raises(UsageError, match="draft_tree"):
                read(draft_tree=wrong)


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


PLAIN = {"temperature": "temperature=0.8", "top_k": "k=40", "top_p": "p=0.95", "min_p": "p=0.05"}


@pytest.fixture
def draw(chain):
    """Call `draw(*arguments)`: the stages whose values are defaults of a chat, and the values of all."""

    def show(*arguments):
        rows = chain(*arguments)
        of_chat = {stage for stage, _, origin in rows if origin.startswith("default of chat")}
        return of_chat, {stage: value for stage, value, _ in rows}

    return show


@pytest.fixture
def model(tmp_path):
    """The folder of a model that is not bundled; its tokenizer has a chat template."""
    return shutil.copytree(bundled_folder("tiny"), tmp_path / "model")


def test_options_without_a_value_take_that_of_the_preset(draw, here, model):
    assert draw("--chat") == (PLAIN.keys(), PLAIN)
    assert draw("--chat", "--top-k", "7")[1] == {**PLAIN, "top_k": "k=7"}
    assert draw("--chat", "--temperature", "0")[0] >= {"top_k"}
    assert draw() == draw("--raw") == (set(), {})
    (model / "generation_config.json").write_text(json.dumps({"top_p": 0.5}))
    of_chat, rows = draw("--chat", "-m", str(model))
    assert of_chat == {"temperature", "top_k", "min_p"}
    assert rows["top_p"] == "p=0.5"


def test_what_decides_the_draw_itself_stays_as_it_is(draw, here):
    here("own.yaml", "chat: true\ntypical: 0.9\n")
    here("voice.yaml", "chat: true\nrepetition_penalty: 1.1\n")
    here("steered.yaml", "chat: true\nstages: {mirostat: {version: 2}}\n")
    assert draw("--preset", "own.yaml") == (set(), {"typical": "p=0.9"})
    assert draw("--preset", "voice.yaml")[0] == PLAIN.keys()
    for flags in (
        ("--compat", "vllm"),
        ("--sampler", "greedy"),
        ("--chain", "temperature"),
        ("--beams", "2"),
    ):
        assert not draw("--chat", *flags)[0], flags
    assert draw("--chat", "--mirostat", "2")[0] == {"temperature"}


def test_the_models_template_applies_where_no_option_says_otherwise(here, model):
    def is_chat(**given):
        settings = gather({"model": str(model), **given}, {}, applies_template=True)
        return settings["chat"], settings.origin("chat")

    assert is_chat() == (True, "default of chat")
    assert is_chat(system="Be brief.")[0]
    assert is_chat(raw=True) == (False, "default")
    assert is_chat(template="Say {{ prompt }}") == (False, "default")
    assert is_chat(model="tiny") == (False, "default")
    assert not gather({"model": str(model)}, {})["chat"]
    (model / "tokenizer_config.json").write_text("{}")
    (model / "chat_template.jinja").unlink(missing_ok=True)
    assert is_chat() == (False, "default")


def test_a_pipe_takes_the_prompt_as_it_is_and_says_so(gencli, here, model):
    told = "The model has a chat template, which --chat applies; --raw says that the prompt is complete."
    plain = gencli("run", "-m", str(model), "--max-tokens", "3", "Once")
    assert told in " ".join(plain.err.split())
    silent = gencli("run", "-m", str(model), "--max-tokens", "3", "--raw", "Once")
    assert "template" not in silent.err
    assert silent.out == plain.out

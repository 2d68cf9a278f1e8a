"""Log-probabilities of outputs, prompts and given texts, and explanations of tokens."""

from dataclasses import replace

from gencli.core.request import Guidance
from tests.engine.harness import Scripted, request
from tests.slow.engine.test_logprobs import asked, check, views


def test_of_random_chains_a_stage_decided_a_token_if_the_engine_chooses_another_without_it():
    for seed in range(8):
        check(seed)


FULL = (
    'ban=["q"] | repetition=1.3 | presence:penalty=0.5,scope=both,when={"from": 6} | dry=0.8'
    " | no_repeat_ngram=3 | temperature=1.5 | top_k=60 | min_p=0.01 | xtc:probability=0.5,threshold=0.05"
)


def test_company_and_drafts_change_nothing_that_is_said():
    for draw in ("gumbel", "multinomial", "greedy"):
        options = {"chain": FULL, "trace": 3, "draw": draw, "jump": "off"}
        ones = [request("the cat sat on the cat", key=i, seed=i, **options) for i in range(3)]
        alone = [views([one])[one.id] for one in ones]
        guided = replace(asked(key="guided"), guidance=Guidance(1.5))
        together = views([*ones, guided], max_batch=4)
        assert [together[one.id] for one in ones] == alone, draw
        assert together["guided"] == views([guided])["guided"], draw
        drafter = Scripted({ones[0].prompt_ids: tuple(alone[0][1])}, most=5)
        assert views(ones[:1], drafter=drafter)[ones[0].id] == alone[0], draw
        assert drafter.proposed, draw
        said = [stage.note + stage.why_not for view in alone[0][0] for stage in view.stages]
        assert any("seen" in one for one in said), draw
        assert "condition not met: from 6" in said, draw

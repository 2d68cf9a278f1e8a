"""Whatever drafts were drawn from, the tokens that stand follow the target's distribution."""

from tests.slow.processors.test_rejection import TOY, check


def test_tokens_follow_the_target_for_all_pairs():
    for name in TOY:
        check(name)

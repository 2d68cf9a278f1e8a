"""What is refused before any model is loaded, and the batch that is planned for several."""

import pytest

from gencli.config.layers import gather
from gencli.errors import ModelError, UsageError
from gencli.runtime.model_loading import ModelChoice, check_memory
from gencli.server.serving import planned_batch

TINY, DRAFT = ModelChoice("tiny"), ModelChoice("tiny-draft")


def test_a_model_that_does_not_fit_beside_the_others_is_refused_by_name():
    free = 2**62
    check_memory([TINY, ModelChoice("fake"), DRAFT], free=free)
    with pytest.raises(ModelError, match="assets/tiny needs"):
        check_memory([TINY], free=0)
    while fits(TINY, free // 2):
        free //= 2
    with pytest.raises(ModelError, match="assets/tiny needs .* free beside tiny[.]") as raised:
        check_memory([TINY, TINY], free=free)
    assert "`memory_check` = off" in raised.value.hint
    check_memory([TINY, ModelChoice("tiny", memory_check=False)], free=free)


def fits(choice, free):
    try:
        check_memory([choice], free=free)
    except ModelError:
        return False
    return True


def test_the_batch_of_several_models_has_room_in_all():
    tiny, draft, fake = (gather({"model": name}, {}) for name in ("tiny", "tiny-draft", "fake"))
    assert planned_batch([fake]) == planned_batch([fake, fake]) == 64
    assert 1 <= planned_batch([tiny, draft]) <= planned_batch([tiny]) == planned_batch([tiny, fake])
    with pytest.raises(UsageError, match="draft"):
        planned_batch([gather({"model": "tiny", "draft": "ngram"}, {}), draft])

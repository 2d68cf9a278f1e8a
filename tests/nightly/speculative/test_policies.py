"""Where drafts have a say in a text, nothing else has: not the neighbours, not the batch, not the clock."""

from tests.slow.speculative.test_policies import check_company
from tests.speculative.test_policies import mixed


def test_no_company_changes_a_text_of_any_drafter_and_policy():
    for least in (0.0, 0.2):
        check_company(least, list(mixed(least=least)))

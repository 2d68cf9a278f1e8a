"""Fetching from a hub: what is needed and no more, resumed, checked, and laid out as other tools expect."""

from itertools import product

from tests.models.hub.test_hub_download import WEIGHTS, check_waits


def test_failures_of_any_status_that_pass_are_waited_for(hub):
    for where, status in product(("api", "config.json", WEIGHTS), (408, 429, 500, 502, 503, 504)):
        check_waits(hub, where, status)

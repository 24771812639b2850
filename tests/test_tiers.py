"""The tests that only `make test-all` runs are there."""

import re
from pathlib import Path

from tests import tiers

ROOT = Path(__file__).parent


def test_every_name_of_a_sibling_is_that_of_a_test():
    for file, patterns in tiers.SIBLINGS.items():
        names = re.findall(r"^def (test_\w+)\(", (ROOT / file).read_text(), re.M)
        for pattern in patterns:
            # without exceptions and parameters
            function = re.sub(r"\(\?!.*?\)", "", pattern).partition(r"\[")[0]
            assert any(re.fullmatch(function, name) for name in names), (file, pattern)


def test_a_sibling_leaves_the_first_of_its_kind():
    assert tiers.is_sibling(
        "run/processes/test_peers.py", "test_a_killed_process_is_named_by_the_others[1]"
    )
    assert not tiers.is_sibling(
        "run/processes/test_peers.py", "test_a_killed_process_is_named_by_the_others[0]"
    )
    assert not tiers.is_sibling("test_peers.py", "test_absent_processes_are_named")

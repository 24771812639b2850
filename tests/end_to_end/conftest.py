"""Runs that tests of several files start from, or compare with."""

import pytest

from tests.support import helpers, shared


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The finished workdir of six steps of the tiny config on one device; nobody changes it."""

    def make(workdir):
        done = helpers.run(helpers.TINY + ":steps=6", workdir)
        assert done.returncode == 0, done.stderr
        return workdir

    return shared.make_once(tmp_path_factory, "trained", make)

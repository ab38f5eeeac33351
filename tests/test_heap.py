"""Tests of the environment that puts a process's heap on huge pages."""

import os
import subprocess
import sys

import pytest

from visavis.heap import huge_page_environment


def test_the_heap_asks_for_huge_pages_and_python_uses_it():
    environment = huge_page_environment({"HOME": "/home/me"})
    assert environment == {
        "HOME": "/home/me",
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        "PYTHONMALLOC": "malloc",
    }


def test_other_tunables_stay():
    environment = huge_page_environment({"GLIBC_TUNABLES": "glibc.malloc.check=1"})
    assert environment is not None
    assert environment["GLIBC_TUNABLES"] == "glibc.malloc.check=1:glibc.malloc.hugetlb=1"


@pytest.mark.parametrize(
    "chosen", [{"PYTHONMALLOC": "debug"}, {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}], ids=str
)
def test_what_the_operator_chose_is_left_alone(chosen):
    assert huge_page_environment(chosen) is None


def test_a_process_that_has_huge_pages_does_not_start_again():
    environment = huge_page_environment({})
    assert environment is not None
    assert huge_page_environment(environment) is None


@pytest.mark.slow
def test_a_server_starts_anew_once_with_its_arguments():
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONMALLOC"}
    script = (
        "import os, sys; from visavis import heap; heap._kernel_allows = lambda: True; "
        "heap.restart_on_huge_pages(); print(os.environ['PYTHONMALLOC'], sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "serve", "--port", "0"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "malloc ['serve', '--port', '0']"

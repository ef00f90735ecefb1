"""Samplers of C functions, by a Cython consumer that is compiled here with neither an include path nor a library."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamacy
from llamacy.core._handle import live_handles
from llamacy.core.candidates import Candidates
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.errors import SamplerError

pytest.importorskip("Cython")

CODE = """
# distutils: language = c++
# cython: language_level=3
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc

from llamacy.core.candidates cimport Candidates, candidate_array
from llamacy.core.custom_sampler cimport sampler_from_functions, sampler_functions
from llamacy.core.sampler cimport SamplerChain, chain_accept, chain_apply

cdef int n_freed = 0

cdef struct state:
    int32_t last
    float boost

cdef void apply(void* data, candidate_array* candidates) noexcept nogil:
    cdef size_t i
    for i in range(candidates.size):
        if candidates.data[i].id == (<state*>data).last:
            candidates.data[i].logit += (<state*>data).boost
    candidates.sorted = 0

cdef void accept(void* data, int32_t token) noexcept nogil:
    (<state*>data).last = token

cdef void reset(void* data) noexcept nogil:
    (<state*>data).last = -1

cdef void* clone(const void* data) noexcept nogil:
    cdef state* made = <state*>malloc(sizeof(state))
    made[0] = (<state*>data)[0]
    return made

cdef void release(void* data) noexcept nogil:
    global n_freed
    n_freed += 1
    free(data)

cdef void cut(void* data, candidate_array* candidates) noexcept nogil:
    candidates.size = 1

def repeat_last(float boost, object owner=None, bint clonable=True):
    cdef sampler_functions functions
    cdef state* data = <state*>malloc(sizeof(state))
    data.last = -1
    data.boost = boost
    functions.name = "repeat-last"
    functions.apply = apply
    functions.accept = accept
    functions.reset = reset
    functions.clone = NULL
    if clonable:
        functions.clone = clone
    functions.free = release
    return sampler_from_functions(&functions, data, owner)

def first():
    cdef sampler_functions functions
    functions.name = "first"
    functions.apply = cut
    functions.accept = NULL
    functions.reset = NULL
    functions.clone = NULL
    functions.free = NULL
    return sampler_from_functions(&functions, NULL)

def nothing():
    cdef sampler_functions functions
    functions.name = NULL
    functions.apply = NULL
    return sampler_from_functions(&functions, NULL)

def freed():
    return n_freed

def run(SamplerChain chain, Candidates candidates, int32_t token):
    with nogil:
        chain_accept(chain, token)
        chain_apply(chain, &candidates._c)
"""

SETUP = """
import sys
from Cython.Build import cythonize
from setuptools import setup
setup(name="consumer", ext_modules=cythonize(["consumer.pyx"], include_path=[sys.argv.pop()], quiet=True))
"""


@pytest.fixture(scope="module")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("consumer")
    (folder / "consumer.pyx").write_text(CODE)
    (folder / "setup.py").write_text(SETUP)
    include = Path(llamacy.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace", str(include)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    spec = importlib.util.spec_from_file_location("consumer", next(folder.glob("consumer.*.*")))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sampler_of_functions_works_in_a_chain_without_the_gil(consumer: Any) -> None:
    with SamplerChain([consumer.repeat_last(5.0), Sampler.greedy()]) as chain:
        assert chain.names == ("repeat-last", "greedy")
        candidates = Candidates([1.0, 2.0, 3.0])
        consumer.run(chain, candidates, 0)
        assert candidates.token == 0
        assert candidates[0] == (0, 6.0, 0.0)
        chain.reset()
        candidates.fill([1.0, 2.0, 3.0])
        chain.apply(candidates)
        assert candidates.token == 2


def test_clone_copies_the_data_and_free_is_called_once(consumer: Any) -> None:
    before, handles = consumer.freed(), live_handles()
    with SamplerChain([consumer.repeat_last(5.0), Sampler.greedy()]) as chain:
        chain.accept(0)
        clone = chain.clone()
        chain.accept(1)
        candidates = Candidates([1.0, 2.0, 3.0])
        clone.apply(candidates)
        assert candidates.token == 0
        chain.copy_to(clone)
        assert consumer.freed() == before + 1
        candidates.fill([1.0, 2.0, 3.0])
        clone.apply(candidates)
        assert candidates.token == 1
        clone.close()
        with chain.remove(0) as link:
            assert link.kind == "from_functions"
            assert link.name == "repeat-last"
            candidates.fill(np.zeros(3))
            link.apply(candidates)
            assert list(candidates.logits) == [0.0, 5.0, 0.0]
        assert consumer.freed() == before + 3
    assert consumer.freed() == before + 3
    assert live_handles() == handles


def test_owner_lives_as_long_as_the_sampler(consumer: Any) -> None:
    class Owner:
        alive = 0

        def __init__(self) -> None:
            Owner.alive += 1

        def __del__(self) -> None:
            Owner.alive -= 1

    chain = SamplerChain([consumer.repeat_last(1.0, Owner())])
    clone = chain.clone()
    chain.close()
    assert Owner.alive == 1
    clone.close()
    assert Owner.alive == 0


def test_data_without_clone_cannot_be_cloned(consumer: Any) -> None:
    # llama.cpp aborts on a sampler with data and no clone
    sampler = consumer.repeat_last(1.0, None, False)
    with pytest.raises(SamplerError, match="can't be cloned"):
        sampler.clone()
    with SamplerChain([SamplerChain([sampler])]) as chain, SamplerChain([SamplerChain([consumer.first()])]) as other:
        with pytest.raises(SamplerError, match="can't be cloned"):
            chain.clone()
        with pytest.raises(SamplerError):
            chain.copy_to(other)


def test_functions_without_data_can_be_cloned(consumer: Any) -> None:
    with consumer.first() as sampler, sampler.clone() as clone:
        candidates = Candidates([1.0, 2.0])
        clone.apply(candidates)
        clone.accept(1)
        clone.reset()
        assert list(candidates.ids) == [0]


def test_name_and_apply_are_required(consumer: Any) -> None:
    with pytest.raises(ValueError, match="name and apply"):
        consumer.nothing()

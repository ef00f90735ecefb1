"""Views of the output buffer: zero-copy, and never dangling."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.context import Context
from llamacy.core.outputs import Outputs, Rows


def decode(context, tokens, pos=0, logits="last"):
    with Batch(len(tokens)) as batch:
        batch.extend(tokens, pos, logits=logits)
        context.decode(batch)


@pytest.fixture
def context(make_model, make_context):
    return make_context(make_model())


def test_logits_views_of_one_row_share_memory(context):
    decode(context, [5, 6])
    first, second = np.asarray(context.logits(-1)), np.asarray(context.logits(1))
    assert np.shares_memory(first, second)
    assert first.dtype == np.float32
    assert not first.flags.writeable
    assert first.flags.c_contiguous


def test_logits_row_shares_memory_with_all_rows(context):
    decode(context, [5, 6, 7], logits="all")
    rows = np.asarray(context.outputs.all_logits())
    assert rows.shape == (3, 288)
    for index in range(3):
        row = np.asarray(context.logits(index))
        assert np.shares_memory(rows, row)
        np.testing.assert_array_equal(row, rows[index])
    np.testing.assert_array_equal(context.logits(-1), rows[2])


def test_view_cannot_be_written(context):
    decode(context, [5])
    with pytest.raises((BufferError, ValueError)):
        np.frombuffer(context.logits(-1), np.float32)[0] = 1


def test_copy_is_independent(context):
    decode(context, [5])
    copy = context.logits(-1).copy()
    before = list(copy)
    decode(context, [6], 1)
    assert list(copy) == before
    assert copy.shape == (288,)


def test_decode_that_fits_goes_ahead_and_the_view_shows_it(context):
    decode(context, [5])
    view = np.asarray(context.logits(-1))
    before = view.copy()
    decode(context, [6], 1)
    assert not np.array_equal(view, before)
    np.testing.assert_array_equal(view, context.logits(-1))


def test_decode_that_moves_the_buffer_raises_while_a_view_lives(context):
    decode(context, [5])
    view = np.asarray(context.logits(-1))
    before = view.copy()
    with pytest.raises(BufferError, match="1 views"):
        decode(context, [6] * 4, 1, logits="all")
    np.testing.assert_array_equal(view, before)
    assert context.memory.seq_pos_max(0) == 0  # nothing was decoded
    del view
    decode(context, [6] * 4, 1, logits="all")


def test_decode_with_fewer_rows_than_before_goes_ahead(context):
    decode(context, [5] * 8, logits="all")
    view = np.asarray(context.outputs.all_logits())
    decode(context, [6] * 3, 8, logits="all")
    np.testing.assert_array_equal(view[:3], context.outputs.all_logits())


def test_embeddings_view_refuses_another_layout(make_model, make_context):
    # embeddings lie behind the logits, so they move when the number of rows changes
    context = make_context(make_model(), embeddings=True)
    decode(context, [5] * 8)
    view = np.asarray(context.embeddings(0))
    with pytest.raises(BufferError):
        decode(context, [6] * 3, 8)
    del view
    decode(context, [6] * 3, 8)
    view = np.asarray(context.embeddings(0))
    decode(context, [7] * 3, 11)
    np.testing.assert_array_equal(view, context.embeddings(0))


def test_switching_embeddings_on_counts_as_another_layout(context):
    decode(context, [5])
    view = np.asarray(context.logits(-1))
    context.embeddings_enabled = True
    with pytest.raises(BufferError):
        decode(context, [6], 1)
    del view
    decode(context, [6], 1)
    assert np.asarray(context.embeddings(-1)).shape == (context.model.n_embd_out,)


def test_close_raises_while_a_view_lives(context):
    decode(context, [5])
    view = memoryview(context.logits(-1))
    with pytest.raises(BufferError):
        context.close()
    with pytest.raises(BufferError):
        context.model.close()
    assert not context.closed
    assert not context.model.closed
    view.release()
    context.close()


def test_view_keeps_context_and_model_alive(make_model):
    context = Context(make_model(), n_threads=1)
    decode(context, [5])
    view = np.asarray(context.logits(-1))
    expected = view.copy()
    alive = weakref.ref(context)
    del context
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(view, expected)
    del view
    gc.collect()
    assert alive() is None


def test_rows_of_an_earlier_decode_cannot_be_viewed_any_more(context):
    decode(context, [5])
    rows = context.logits(-1)
    decode(context, [6], 1)
    with pytest.raises(BufferError, match="earlier"):
        memoryview(rows)


def test_seq_embeddings_are_owned(make_model, make_context, bert_path):
    context = make_context(make_model(bert_path), embeddings=True)
    with Batch(4) as batch:
        batch.extend([1, 25, 2], 0)
        context.encode(batch)
        owned = context.seq_embeddings(0)
        before = list(owned)
        batch.clear()
        batch.extend([1, 30, 2], 0)
        context.encode(batch)
    assert list(owned) == before
    assert list(context.seq_embeddings(0)) != before


def test_outputs_count_and_repr(context):
    assert len(context.outputs) == 0
    decode(context, [5, 6], logits="all")
    assert len(context.outputs) == 2
    assert "2 rows" in repr(context.outputs)
    assert "(288,)" in repr(context.logits(0))
    assert len(context.logits(0)) == 288


def test_outputs_cannot_be_made():
    with pytest.raises(TypeError):
        Outputs()
    with pytest.raises(TypeError):
        Rows()

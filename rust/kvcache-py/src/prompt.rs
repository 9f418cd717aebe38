//! What can be asked about: token ids, blocks hashed once, or a conversation.
//!
//! Short queries keep the GIL (see [`crate::gil`]).

use kvcache_core::hash::BlockKeys;
use pyo3::prelude::*;

use crate::block_keys::PyBlockKeys;
use crate::conversation::PyConversation;
use crate::gil;
use crate::tokens::TokenIds;

/// Hands `prompt` over as what it is; returns the answer, and how many tokens it has. Raises `TokenIdsError`.
pub(crate) fn ask<T: Send>(
    py: Python<'_>,
    prompt: &Bound<'_, PyAny>,
    by_tokens: impl FnOnce(&[u32]) -> T + Send,
    by_keys: impl FnOnce(&BlockKeys) -> T + Send,
) -> PyResult<(T, usize)> {
    if let Ok(keys) = prompt.cast_exact::<PyBlockKeys>() {
        let keys = &keys.get().keys;
        let enough = keys.len() >= gil::ENOUGH;
        let answer = gil::free_while(py, enough, || by_keys(keys));
        return Ok((answer, keyed_tokens(keys)));
    }
    if let Ok(conversation) = prompt.cast_exact::<PyConversation>() {
        return Ok(conversation.get().ask(py, by_keys));
    }
    let tokens = TokenIds::extract(prompt)?;
    let enough = tokens.is_enough_work();
    let tokens = tokens.as_slice();
    let answer = gil::free_while(py, enough, || by_tokens(tokens));
    Ok((answer, tokens.len()))
}

/// Tokens of a prompt as a query takes it; of `BlockKeys` those of its full blocks. Raises `TokenIdsError`.
#[pyfunction]
pub(crate) fn token_count(py: Python<'_>, token_ids: &Bound<'_, PyAny>) -> PyResult<usize> {
    Ok(ask(py, token_ids, |_| (), |_| ())?.1)
}

fn keyed_tokens(keys: &BlockKeys) -> usize {
    keys.len() * keys.spec().block_size_tokens.get() as usize
}

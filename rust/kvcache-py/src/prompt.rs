//! What can be asked about: token ids, blocks hashed once, or a conversation.
//!
//! Also decides when the GIL is worth giving away.

use kvcache_core::hash::BlockKeys;
use pyo3::prelude::*;

use crate::block_keys::PyBlockKeys;
use crate::conversation::PyConversation;
use crate::tokens::TokenIds;

/// Tokens whose hashing takes longer than giving the GIL away and taking it back may cost.
///
/// Who gives it away while another thread computes may wait for a whole switch interval, 5 ms, to have it again.
const DETACH_FROM_TOKENS: usize = 8_000;

/// Bytes of JSON whose parsing takes as long.
const DETACH_FROM_BYTES: usize = 16_384;

/// Blocks whose walk takes as long.
const DETACH_FROM_BLOCKS: usize = 4_000;

/// Hands `prompt` over as what it is. Raises `TokenIdsError`.
pub(crate) fn ask<T: Send>(
    py: Python<'_>,
    prompt: &Bound<'_, PyAny>,
    by_tokens: impl FnOnce(&[u32]) -> T + Send,
    by_keys: impl FnOnce(&BlockKeys) -> T + Send,
) -> PyResult<T> {
    if let Ok(keys) = prompt.cast_exact::<PyBlockKeys>() {
        let keys = &keys.get().keys;
        return Ok(detached(py, is_long_walk(keys), || by_keys(keys)));
    }
    if let Ok(conversation) = prompt.cast_exact::<PyConversation>() {
        return Ok(conversation.get().ask(py, by_keys));
    }
    let tokens = TokenIds::extract(prompt)?;
    let tokens = tokens.as_slice();
    Ok(detached(py, is_long_hash(tokens), || by_tokens(tokens)))
}

/// Whether walking along `keys` takes long.
pub(crate) fn is_long_walk(keys: &BlockKeys) -> bool {
    keys.len() >= DETACH_FROM_BLOCKS
}

/// Whether hashing `tokens` takes long.
pub(crate) fn is_long_hash(tokens: &[u32]) -> bool {
    tokens.len() >= DETACH_FROM_TOKENS
}

/// Whether parsing `body` takes long.
pub(crate) fn is_long_body(body: &[u8]) -> bool {
    body.len() >= DETACH_FROM_BYTES
}

/// Runs `work` without the GIL if it is `long`.
pub(crate) fn detached<T: Send>(py: Python<'_>, long: bool, work: impl FnOnce() -> T + Send) -> T {
    if long { py.detach(work) } else { work() }
}

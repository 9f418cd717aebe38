//! Block identity: what names a block is its tokens and everything before them, never an engine's hash.
//!
//! One definition for applying events and for asking, so that both sides meet (spec: content keys).
//! Golden vectors in `tests/golden/block_keys.json` pin it across releases and languages. Pure
//! functions: nothing here knows streams, tiers or the index.

mod block_keys;
mod conversation;
mod hasher;
mod mid;
mod secret;

#[cfg(test)]
mod tests;

pub use block_keys::BlockKeys;
pub use conversation::Conversation;
pub use hasher::Hasher;

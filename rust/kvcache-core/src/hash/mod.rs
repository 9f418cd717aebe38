//! Block identity: what names a block is its tokens and everything before them, never an engine's hash.
//!
//! One definition for applying events and for asking, so that both sides meet (spec: content keys).
//! Golden vectors in `tests/golden/block_keys.json` pin it across releases and languages. Pure
//! functions: nothing here knows streams, tiers or the index.

mod block;
mod block_keys;
mod key;

#[cfg(test)]
mod tests;

pub use block::block_hash;
pub use block_keys::BlockKeys;
pub use key::content_key;

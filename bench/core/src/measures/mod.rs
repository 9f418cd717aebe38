//! One measure a file.

pub mod beside;
pub mod decoding;
pub mod memory;
pub mod snapshot;
pub mod streams;
pub mod wire;

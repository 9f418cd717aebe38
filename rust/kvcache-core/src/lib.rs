//! The live directory of the KV-cache blocks that inference engines hold.
//!
//! Rooms, from the bottom: [`model`] (words and limits), [`hash`] (block identity), [`decode`] (bytes to events),
//! [`index`] (who holds what), [`stream`] (one engine rank's protocol, without I/O), [`ingest`] (sockets and clock),
//! [`directory`] (the whole). Nothing here knows Python.

pub mod decode;
pub mod directory;
pub mod hash;
pub mod index;
pub mod ingest;
pub mod model;
pub mod stream;

/// The transport, for its endpoints.
pub use zmtp;

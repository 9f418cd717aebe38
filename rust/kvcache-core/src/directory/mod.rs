//! The whole: streams followed by [`crate::ingest`], views kept in [`crate::index`], one answer for every query.
//!
//! The public surface of the crate. Holds one index for each way of naming blocks; usually there is one.

mod answer;
mod cursor;
mod digits;
#[expect(
    clippy::module_inception,
    reason = "the room is named after its main type"
)]
mod directory;
mod encoding;
mod indexes;
mod journal;
mod request;
mod stream_views;

pub use answer::matches_json;
pub use directory::{Directory, DirectoryError, StreamChanges, StreamInfo, StreamSpec};
pub use journal::{Change, Entries, Journal, Shown, Transition};
pub use request::{MAX_REQUEST_ID_CHARS, QueryRequest, RequestError, RouteRequest};

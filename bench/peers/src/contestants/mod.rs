//! The contestants, one a file.

mod dynamo;
mod flush_mark;
mod kvcache;
mod smg;

pub use dynamo::{Compressed, Dynamo, Positional};
pub use kvcache::Kvcache;
pub use smg::Smg;

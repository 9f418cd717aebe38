//! `kvcache._core`: the core as Python sees it.
//!
//! Extract, detach, convert; no decisions here. A file for each Python type, named as the core's.

mod block_keys;
mod candidate_costs;
mod conversation;
mod directory;
mod errors;
mod gil;
mod matches;
mod prefix_index;
mod process;
mod prompt;
mod reduce;
mod route_request;
mod stream_journal;
mod stream_names;
mod stream_spec;
mod timeout;
mod tokens;

use pyo3::prelude::*;

/// The Rust core. Everything here is re-exported by `kvcache`; import it from there.
#[pymodule(gil_used = false)]
mod _core {
    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_export]
    use crate::block_keys::{_block_keys, PyBlockKeys, block_keys};
    #[pymodule_export]
    use crate::candidate_costs::{_candidate_costs, PyCandidateCosts};
    #[pymodule_export]
    use crate::conversation::{_conversation, PyConversation};
    #[pymodule_export]
    use crate::directory::PyDirectory;
    #[pymodule_export]
    use crate::matches::{_match, _matches, PyMatch, PyMatches};
    #[pymodule_export]
    use crate::prefix_index::PyPrefixIndex;
    #[pymodule_export]
    use crate::prompt::token_count;
    #[pymodule_export]
    use crate::route_request::{parse_route_request, refuse_encoding};
    #[pymodule_export]
    use crate::stream_journal::PyStreamJournal;
    #[pymodule_export]
    use crate::stream_spec::PyStreamSpec;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::gil::find_out(module.py())?;
        crate::process::count_forks(module.py())?;
        module.add(
            "MAX_REQUEST_ID_CHARS",
            kvcache_core::directory::MAX_REQUEST_ID_CHARS,
        )?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

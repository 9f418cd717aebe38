//! The core's errors as the exceptions of `kvcache.exceptions`, in one place.

use kvcache_core::directory::{DirectoryError, RequestError};
use kvcache_core::index::IndexError;
use kvcache_core::model::ApplyError;
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};

mod exceptions {
    pyo3::import_exception!(kvcache.exceptions, ClosedError);
    pyo3::import_exception!(kvcache.exceptions, KvCacheError);
    pyo3::import_exception!(kvcache.exceptions, RequestError);
    pyo3::import_exception!(kvcache.exceptions, StoreError);
    pyo3::import_exception!(kvcache.exceptions, TokenIdsError);
    pyo3::import_exception!(kvcache.exceptions, WaitTimeoutError);
}

pub(crate) fn directory(error: &DirectoryError) -> PyErr {
    let text = error.to_string();
    match error {
        DirectoryError::Closed => exceptions::ClosedError::new_err(text),
        DirectoryError::WaitTimeout { .. } => exceptions::WaitTimeoutError::new_err(text),
        DirectoryError::Runtime(_) => PyOSError::new_err(text),
        DirectoryError::Index(error) => index(error),
        DirectoryError::TooManyStreams(_)
        | DirectoryError::TooManySpecs
        | DirectoryError::DuplicateStream(_) => PyValueError::new_err(text),
    }
}

/// The words are those of `kvcache._process.Home`.
pub(crate) fn forked(what: &str) -> PyErr {
    exceptions::KvCacheError::new_err(format!(
        "this {what} was started in another process, and its threads do not exist in this one: start it after the fork"
    ))
}

pub(crate) fn index(error: &IndexError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub(crate) fn store(error: &ApplyError) -> PyErr {
    exceptions::StoreError::new_err(error.to_string())
}

pub(crate) fn request(error: &RequestError) -> PyErr {
    exceptions::RequestError::new_err((error.code(), error.to_string()))
}

pub(crate) fn token_ids(message: String) -> PyErr {
    exceptions::TokenIdsError::new_err(message)
}

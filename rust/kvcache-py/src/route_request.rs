//! `parse_route_request`, and what other parsers of bodies need beside it.

use kvcache_core::directory::{RequestError, RouteRequest};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors;
use crate::gil;

/// The token ids (little-endian uint32), the request id and whether to explain, of a body. Raises `RequestError`.
#[pyfunction]
pub(crate) fn parse_route_request<'py>(
    py: Python<'py>,
    body: &[u8],
) -> PyResult<(Bound<'py, PyBytes>, Option<String>, bool)> {
    let parsed = gil::free_while(py, body.len() >= gil::ENOUGH, || RouteRequest::parse(body));
    let request = parsed.map_err(|error| errors::request(&error))?;
    let token_ids = PyBytes::new_with(py, request.token_ids.len() * 4, |bytes| {
        for (place, token) in bytes.chunks_exact_mut(4).zip(&request.token_ids) {
            place.copy_from_slice(&token.to_le_bytes());
        }
        Ok(())
    })?;
    Ok((token_ids, request.request_id, request.explain))
}

/// Refuses a body that is compressed or not plain UTF-8, by its first bytes. Raises `RequestError`.
#[pyfunction]
pub(crate) fn refuse_encoding(body: &[u8]) -> PyResult<()> {
    RequestError::refuse_encoding(body).map_err(|error| errors::request(&error))
}

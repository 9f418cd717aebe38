//! `BlockKeys` and `block_keys`.

use std::num::NonZeroU32;

use kvcache_core::hash::BlockKeys;
use kvcache_core::model::{BlockHash, BlockSpec};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::gil;
use crate::reduce::{Reduced, reduced};
use crate::tokens::TokenIds;

/// A prompt's full blocks, hashed once (spec: content keys).
#[derive(PartialEq, Eq, Hash)]
#[pyclass(frozen, eq, hash, name = "BlockKeys", module = "kvcache._core")]
pub(crate) struct PyBlockKeys {
    pub(crate) keys: BlockKeys,
}

#[pymethods]
impl PyBlockKeys {
    /// Tokens in a block.
    #[getter]
    fn block_size(&self) -> u32 {
        self.keys.spec().block_size_tokens.get()
    }

    /// Seed of both hashes.
    #[getter]
    fn hash_seed(&self) -> u64 {
        self.keys.spec().hash_seed
    }

    /// 16 little-endian bytes a block: XXH3-128 of its tokens.
    #[getter]
    fn block_hashes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        little_endian(
            py,
            self.keys.block_hashes().iter().map(|hash| hash.0),
            self.keys.len(),
        )
    }

    /// 16 little-endian bytes a block: XXH3-128 of the parent's content key and the block hash.
    #[getter]
    fn content_keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        little_endian(
            py,
            self.keys.content_keys().iter().map(|key| key.0),
            self.keys.len(),
        )
    }

    fn __len__(&self) -> usize {
        self.keys.len()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let args = (self.block_size(), self.hash_seed(), self.block_hashes(py)?);
        reduced(py, "_block_keys", args)
    }
}

/// What `BlockKeys` is made of in another process; the content keys follow from the hashes.
#[pyfunction]
pub(crate) fn _block_keys(
    block_size: u32,
    hash_seed: u64,
    block_hashes: &[u8],
) -> PyResult<PyBlockKeys> {
    let spec = block_spec(block_size, hash_seed)?;
    let (hashes, rest) = block_hashes.as_chunks::<16>();
    if !rest.is_empty() {
        return Err(PyValueError::new_err("a block hash has 16 bytes"));
    }
    let hashes = hashes
        .iter()
        .map(|bytes| BlockHash(u128::from_le_bytes(*bytes)));
    Ok(PyBlockKeys {
        keys: BlockKeys::from_block_hashes(spec, hashes.collect()),
    })
}

fn little_endian(
    py: Python<'_>,
    values: impl Iterator<Item = u128>,
    count: usize,
) -> PyResult<Bound<'_, PyBytes>> {
    PyBytes::new_with(py, count * 16, |out| {
        for (place, value) in out.as_chunks_mut::<16>().0.iter_mut().zip(values) {
            *place = value.to_le_bytes();
        }
        Ok(())
    })
}

/// How blocks are named, checked.
pub(crate) fn block_spec(block_size: u32, hash_seed: u64) -> PyResult<BlockSpec> {
    let block_size_tokens = NonZeroU32::new(block_size)
        .ok_or_else(|| PyValueError::new_err("block_size must be at least 1, not: 0"))?;
    Ok(BlockSpec {
        block_size_tokens,
        hash_seed,
    })
}

/// Hashes a prompt's full blocks. Raises `TokenIdsError`; `ValueError` for a block size of 0.
#[pyfunction]
#[pyo3(signature = (token_ids, block_size=128, hash_seed=1024))]
pub(crate) fn block_keys(
    py: Python<'_>,
    token_ids: &Bound<'_, PyAny>,
    block_size: u32,
    hash_seed: u64,
) -> PyResult<PyBlockKeys> {
    let spec = block_spec(block_size, hash_seed)?;
    let tokens = TokenIds::extract(token_ids)?;
    let enough = tokens.is_enough_work();
    let tokens = tokens.as_slice();
    Ok(PyBlockKeys {
        keys: gil::free_while(py, enough, || BlockKeys::compute(tokens, spec)),
    })
}

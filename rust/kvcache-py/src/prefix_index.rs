//! `PrefixIndex`: the index alone, for embedding.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kvcache_core::index::{Origin, PrefixIndex, StreamWriter};
use kvcache_core::model::{Batch, Event, Stored, StreamKey, Tier, WireHash};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::block_keys::block_spec;
use crate::errors;
use crate::matches::PyMatches;
use crate::prompt::ask;
use crate::reduce::stays;
use crate::stream_names::StreamNames;
use crate::tokens::TokenIds;

/// The index alone, without network. Thread-safe; queries never wait for writers.
#[pyclass(frozen, subclass, name = "PrefixIndex", module = "kvcache._core")]
pub(crate) struct PyPrefixIndex {
    index: Arc<PrefixIndex>,
    max_blocks_per_stream: usize,
    /// Writers take turns; queries never come here.
    writers: Mutex<HashMap<StreamKey, StreamWriter>>,
    names: StreamNames,
}

impl PyPrefixIndex {
    /// Applies one event to `stream`; one that is not there is added when `absent` says so.
    fn write(
        &self,
        py: Python<'_>,
        stream: &StreamKey,
        batch: &Batch,
        absent: Absent,
    ) -> PyResult<()> {
        py.detach(|| {
            let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(writer) = writers.get_mut(stream) {
                let applied = writer.apply(batch, None);
                return applied.map(drop).map_err(|error| errors::store(&error));
            }
            if absent == Absent::Add {
                let writer = self.add_stream(stream, batch)?;
                writers.insert(stream.clone(), writer);
            }
            Ok(())
        })
    }

    /// Adds a stream that holds what `batch` stores; no query ever sees one for a batch that is refused.
    fn add_stream(&self, stream: &StreamKey, batch: &Batch) -> PyResult<StreamWriter> {
        let mut draft = self.index.new_draft(self.max_blocks_per_stream);
        draft
            .apply(batch, Origin::Live)
            .map_err(|error| errors::store(&error))?;
        let mut writer = self
            .index
            .add_stream(stream.clone(), self.max_blocks_per_stream)
            .map_err(|error| errors::index(&error))?;
        writer
            .publish(draft, None)
            .map_err(|error| errors::store(&error))?;
        Ok(writer)
    }
}

/// What an event means for a stream that is not in the index.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    /// The stream begins with it.
    Add,
    /// Nothing: there is nothing to take away.
    Ignore,
}

#[pymethods]
impl PyPrefixIndex {
    #[new]
    #[pyo3(signature = (block_size=128, *, hash_seed=1024, max_blocks_per_stream=262_144))]
    fn new(block_size: u32, hash_seed: u64, max_blocks_per_stream: usize) -> PyResult<Self> {
        let index = PrefixIndex::new(block_spec(block_size, hash_seed)?);
        Ok(Self {
            index,
            max_blocks_per_stream,
            writers: Mutex::default(),
            names: StreamNames::default(),
        })
    }

    /// Tokens in a block.
    #[getter]
    fn block_size(&self) -> u32 {
        self.index.spec().block_size_tokens.get()
    }

    /// Seed of both hashes.
    #[getter]
    fn hash_seed(&self) -> u64 {
        self.index.spec().hash_seed
    }

    /// Stores consecutive blocks; without token ids, copies of known ones. Raises `StoreError`.
    #[pyo3(signature = (stream, block_hashes, token_ids=None, parent=None, tier="gpu"))]
    fn store(
        &self,
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        block_hashes: &Bound<'_, PyAny>,
        token_ids: Option<&Bound<'_, PyAny>>,
        parent: Option<&Bound<'_, PyAny>>,
        tier: &str,
    ) -> PyResult<()> {
        let wire_hashes = wire_hashes(block_hashes)?;
        let token_ids = match token_ids {
            Some(token_ids) => TokenIds::extract(token_ids)?.as_slice().to_vec(),
            None => Vec::new(),
        };
        let stored = Stored {
            wire_hashes: 0..wire_hashes.len(),
            token_ids: 0..token_ids.len(),
            parent: parent.map(wire_hash).transpose()?,
            tier: Some(parse_tier(tier)?),
        };
        let batch = Batch {
            events: vec![Event::Stored(stored)],
            wire_hashes,
            token_ids,
        };
        self.write(py, &stream_key(stream)?, &batch, Absent::Add)
    }

    /// Takes the copies of one tier away. Unknown hashes and absent copies are harmless.
    #[pyo3(signature = (stream, block_hashes, tier="gpu"))]
    fn remove(
        &self,
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        block_hashes: &Bound<'_, PyAny>,
        tier: &str,
    ) -> PyResult<()> {
        let wire_hashes = wire_hashes(block_hashes)?;
        let tier = Some(parse_tier(tier)?);
        let event = Event::Removed {
            wire_hashes: 0..wire_hashes.len(),
            tier,
        };
        let batch = Batch {
            events: vec![event],
            wire_hashes,
            token_ids: Vec::new(),
        };
        self.write(py, &stream_key(stream)?, &batch, Absent::Ignore)
    }

    /// Forgets every block of the stream.
    fn clear(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let batch = Batch {
            events: vec![Event::Cleared],
            ..Batch::default()
        };
        self.write(py, &stream_key(stream)?, &batch, Absent::Ignore)
    }

    /// Takes the stream out of the index and of answers.
    fn discard_stream(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = stream_key(stream)?;
        py.detach(|| {
            let writer = self
                .writers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&key);
            drop(writer);
        });
        Ok(())
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        let why = "it is memory that its threads share: store the same blocks in another";
        Err(stays(slf, why))
    }

    /// Who holds how much of a prompt, given as token ids, `BlockKeys` or a `Conversation`.
    fn query(&self, py: Python<'_>, token_ids: &Bound<'_, PyAny>) -> PyResult<PyMatches> {
        let (matches, token_count) = ask(
            py,
            token_ids,
            |tokens| Ok(self.index.query_tokens(tokens)),
            |keys| self.index.query_keys(keys),
        )?;
        let matches = matches.map_err(|error| errors::index(&error))?;
        Ok(PyMatches::new(matches, token_count, &self.names))
    }
}

/// `"name"` is rank 0; otherwise `("name", rank)`.
fn stream_key(stream: &Bound<'_, PyAny>) -> PyResult<StreamKey> {
    if let Ok(name) = stream.extract::<&str>() {
        return Ok(StreamKey::new(name, 0));
    }
    let (name, rank): (String, u32) = stream
        .extract()
        .map_err(|_| PyTypeError::new_err("a stream is a name, or a tuple of a name and a rank"))?;
    Ok(StreamKey::new(&name, rank))
}

fn parse_tier(tier: &str) -> PyResult<Tier> {
    match tier {
        "gpu" => Ok(Tier::Device),
        "cpu" => Ok(Tier::Host),
        _ => Err(PyValueError::new_err(format!(
            "tier must be gpu or cpu, not: {tier}"
        ))),
    }
}

/// 64 bits, signed or unsigned (spec: live protocol).
fn wire_hash(value: &Bound<'_, PyAny>) -> PyResult<WireHash> {
    if let Ok(unsigned) = value.extract::<u64>() {
        return Ok(WireHash(unsigned));
    }
    match value.extract::<i64>() {
        Ok(signed) => Ok(WireHash(signed.cast_unsigned())),
        Err(_) => Err(PyOverflowError::new_err(format!(
            "a block hash has 64 bits, not: {}",
            value.repr()?
        ))),
    }
}

fn wire_hashes(values: &Bound<'_, PyAny>) -> PyResult<Vec<WireHash>> {
    values.try_iter()?.map(|value| wire_hash(&value?)).collect()
}

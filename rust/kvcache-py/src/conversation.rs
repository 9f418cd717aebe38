//! `Conversation`.

use std::sync::{PoisonError, RwLock};

use kvcache_core::hash::{BlockKeys, Conversation};
use pyo3::prelude::*;

use crate::block_keys::{PyBlockKeys, block_spec};
use crate::gil;
use crate::reduce::{Reduced, reduced};
use crate::tokens::TokenIds;

/// A prompt that grows: what a next turn appends is hashed, and nothing twice.
///
/// Python is never called while the lock is held.
#[pyclass(frozen, name = "Conversation", module = "kvcache._core")]
pub(crate) struct PyConversation {
    conversation: RwLock<Conversation>,
}

impl PyConversation {
    /// Hands the keys over as they are now, and says of how many tokens; they do not change meanwhile.
    pub(crate) fn ask<T: Send>(
        &self,
        py: Python<'_>,
        by_keys: impl FnOnce(&BlockKeys) -> T + Send,
    ) -> (T, usize) {
        let ask = |conversation: &Conversation| {
            (by_keys(conversation.keys()), conversation.token_count())
        };
        if let Ok(conversation) = self.conversation.try_read()
            && conversation.keys().len() < gil::ENOUGH
        {
            return ask(&conversation);
        }
        // Also where another thread is extending it: whoever waits for a lock gives the GIL up.
        gil::free_while(py, true, || self.read(ask))
    }

    fn read<T>(&self, read: impl FnOnce(&Conversation) -> T) -> T {
        read(
            &self
                .conversation
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn write<T>(&self, write: impl FnOnce(&mut Conversation) -> T) -> T {
        let mut conversation = self
            .conversation
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        write(&mut conversation)
    }
}

#[pymethods]
impl PyConversation {
    #[new]
    #[pyo3(signature = (block_size=128, *, hash_seed=1024))]
    fn new(block_size: u32, hash_seed: u64) -> PyResult<Self> {
        let spec = block_spec(block_size, hash_seed)?;
        Ok(Self {
            conversation: RwLock::new(Conversation::new(spec)),
        })
    }

    /// Tokens in a block.
    #[getter]
    fn block_size(&self) -> u32 {
        self.read(|conversation| conversation.keys().spec().block_size_tokens.get())
    }

    /// Seed of both hashes.
    #[getter]
    fn hash_seed(&self) -> u64 {
        self.read(|conversation| conversation.keys().spec().hash_seed)
    }

    /// Tokens so far, those of the last, partial block included.
    #[getter]
    fn token_count(&self) -> usize {
        self.read(Conversation::token_count)
    }

    /// Appends tokens. Raises `TokenIdsError`, and appends nothing then.
    fn extend(&self, py: Python<'_>, token_ids: &Bound<'_, PyAny>) -> PyResult<()> {
        let tokens = TokenIds::extract(token_ids)?;
        let enough = tokens.is_enough_work();
        let tokens = tokens.as_slice();
        if !enough && let Ok(mut conversation) = self.conversation.try_write() {
            conversation.extend(tokens);
            return Ok(());
        }
        gil::free_while(py, true, || {
            self.write(|conversation| conversation.extend(tokens));
        });
        Ok(())
    }

    /// Forgets the tokens from `token_count` on, with the whole of a full block that this cuts. Returns how many are left.
    fn truncate(&self, token_count: usize) -> usize {
        self.write(|conversation| conversation.truncate(token_count))
    }

    /// The keys of the full blocks so far; later turns do not change them.
    fn block_keys(&self) -> PyBlockKeys {
        PyBlockKeys {
            keys: self.read(|conversation| conversation.keys().clone()),
        }
    }

    /// A copy goes its own way.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let conversation = self.read(Conversation::clone);
        let tail = conversation.tail().to_vec();
        let keys = PyBlockKeys {
            keys: conversation.keys().clone(),
        };
        reduced(py, "_conversation", (keys, tail))
    }

    fn __repr__(&self) -> String {
        self.read(|conversation| {
            let spec = conversation.keys().spec();
            format!(
                "Conversation(block_size={}, hash_seed={}, token_count={})",
                spec.block_size_tokens,
                spec.hash_seed,
                conversation.token_count()
            )
        })
    }
}

/// Takes a `Conversation` up in another process.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "converted from a list")]
pub(crate) fn _conversation(keys: &PyBlockKeys, tail: Vec<u32>) -> PyConversation {
    PyConversation {
        conversation: RwLock::new(Conversation::resume(keys.keys.clone(), &tail)),
    }
}

//! The streams of an index's answers as Python objects, made once for as long as they stay the same.

use std::sync::{Arc, Mutex, PoisonError};

use kvcache_core::index::Matches;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Shared by an index and its answers. Python is never called while the lock is held.
#[derive(Clone, Default)]
pub(crate) struct StreamNames(Arc<Mutex<Option<Named>>>);

struct Named {
    /// An answer with these streams; keeps its rows where they are, so that their address tells them.
    answer: Matches,
    tuples: Tuples,
}

/// What streams are called, an element each.
pub(crate) struct Tuples {
    /// Name and rank.
    pub(crate) names: Py<PyTuple>,
    /// Identity, or `None`.
    pub(crate) identities: Py<PyTuple>,
}

impl StreamNames {
    /// The tuples of an answer's streams; the same objects as before while the streams are.
    pub(crate) fn of(&self, py: Python<'_>, answer: &Matches) -> PyResult<Tuples> {
        let before = self.lock(|named| {
            let named = named.as_ref()?;
            Some((is_same(&named.answer, answer), named.tuples.clone_ref(py)))
        });
        let before = match before {
            Some((true, tuples)) => return Ok(tuples),
            Some((false, tuples)) => Some(tuples),
            None => None,
        };
        let names = answer
            .iter()
            .map(|(row, _)| (&*row.key().instance_name, row.key().dp_rank.0));
        let names = PyTuple::new(py, names.collect::<Vec<_>>())?;
        let identities = answer.iter().map(|(row, _)| row.identity());
        let identities = PyTuple::new(py, identities.collect::<Vec<_>>())?;
        // Rows change whenever a view does; the streams seldom.
        let tuples = Tuples {
            names: unchanged(py, before.as_ref().map(|before| &before.names), names)?,
            identities: unchanged(
                py,
                before.as_ref().map(|before| &before.identities),
                identities,
            )?,
        };
        let latest = Named {
            answer: answer.clone(),
            tuples: tuples.clone_ref(py),
        };
        let old = self.lock(|place| place.replace(latest));
        drop(old);
        Ok(tuples)
    }

    fn lock<T>(&self, look: impl FnOnce(&mut Option<Named>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Tuples {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            names: self.names.clone_ref(py),
            identities: self.identities.clone_ref(py),
        }
    }
}

/// The object from before, if it is equal.
fn unchanged(
    py: Python<'_>,
    before: Option<&Py<PyTuple>>,
    now: Bound<'_, PyTuple>,
) -> PyResult<Py<PyTuple>> {
    match before {
        Some(before) if before.bind(py).eq(&now)? => Ok(before.clone_ref(py)),
        _ => Ok(now.unbind()),
    }
}

/// Whether two answers share their rows.
fn is_same(one: &Matches, other: &Matches) -> bool {
    match (one.get(0), other.get(0)) {
        (Some((one_row, _)), Some((other_row, _))) => {
            std::ptr::eq(one_row, other_row) && one.len() == other.len()
        }
        (None, None) => true,
        _ => false,
    }
}

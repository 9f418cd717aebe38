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
    names: Py<PyTuple>,
}

impl StreamNames {
    /// A tuple of name and rank a stream; the same object as before while the streams are.
    pub(crate) fn of<'py>(
        &self,
        py: Python<'py>,
        answer: &Matches,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let before = self.lock(|named| {
            let named = named.as_ref()?;
            Some((
                is_same(&named.answer, answer),
                named.names.clone_ref(py).into_bound(py),
            ))
        });
        let before = match before {
            Some((true, names)) => return Ok(names),
            Some((false, names)) => Some(names),
            None => None,
        };
        let pairs = answer
            .iter()
            .map(|(row, _)| (&*row.key().instance_name, row.key().dp_rank.0));
        let names = PyTuple::new(py, pairs.collect::<Vec<_>>())?;
        // Rows change whenever a view does; the streams seldom.
        let names = match before {
            Some(before) if before.eq(&names)? => before,
            _ => names,
        };
        let latest = Named {
            answer: answer.clone(),
            names: names.clone().unbind(),
        };
        let old = self.lock(|place| place.replace(latest));
        drop(old);
        Ok(names)
    }

    fn lock<T>(&self, look: impl FnOnce(&mut Option<Named>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
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

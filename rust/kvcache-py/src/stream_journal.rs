//! `StreamJournal`: the journal of lost and returned streams, as Python reads it.

use std::sync::Arc;

use kvcache_core::directory::{Change, Journal, Shown, Transition};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::reduce::stays;

/// Reads a directory's journal without holding the directory.
#[pyclass(frozen, name = "StreamJournal", module = "kvcache._core")]
pub(crate) struct PyStreamJournal {
    journal: Arc<Journal>,
}

impl PyStreamJournal {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        Self { journal }
    }
}

#[pymethods]
impl PyStreamJournal {
    /// Waits for the next transitions (see `kvcache.types.StreamTransition`), and how many older
    /// ones were dropped. None when the directory is closed and everything was read.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyList>, u64)>> {
        let Some(entries) = py.detach(|| self.journal.wait()) else {
            return Ok(None);
        };
        let transitions = entries.transitions.iter();
        let dicts: PyResult<Vec<_>> = transitions.map(|one| transition(py, one)).collect();
        Ok(Some((PyList::new(py, dicts?)?, entries.dropped)))
    }

    /// Ends the journal: `wait` returns what is left, and then None.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.journal.close());
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        let why = "it is of one directory: ask another for its own";
        Err(stays(slf, why))
    }
}

fn transition<'py>(py: Python<'py>, one: &Transition) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("instance_name", &*one.key.instance_name)?;
    dict.set_item("dp_rank", one.key.dp_rank.0)?;
    dict.set_item("left_out", one.left_out)?;
    match &one.change {
        Change::Lost { sequence, reason } => {
            dict.set_item("change", "lost")?;
            dict.set_item("sequence", sequence.map(|sequence| sequence.0))?;
            dict.set_item("reason", reason)?;
        }
        Change::First { after, shown } => {
            dict.set_item("change", "first")?;
            dict.set_item("after_s", after.as_secs_f64())?;
            set_shown(&dict, *shown)?;
        }
        Change::Returned { after, shown } => {
            dict.set_item("change", "returned")?;
            dict.set_item("after_s", after.as_secs_f64())?;
            set_shown(&dict, *shown)?;
        }
    }
    Ok(dict)
}

fn set_shown(dict: &Bound<'_, PyDict>, shown: Shown) -> PyResult<()> {
    dict.set_item("sequence", shown.sequence.0)?;
    dict.set_item("device_blocks", shown.device_blocks)?;
    dict.set_item("host_blocks", shown.host_blocks)
}

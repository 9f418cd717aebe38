//! `Matches`, and the `Match` that it builds when one is asked for.

use kvcache_core::index::{Hit, Matches, Row};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice};

/// What one stream holds of a prompt (spec: query).
#[pyclass(frozen, name = "Match", module = "kvcache._core")]
pub(crate) struct PyMatch {
    row: Row,
    hit: Hit,
}

#[pymethods]
impl PyMatch {
    #[getter]
    fn instance_name(&self) -> &str {
        &self.row.key().instance_name
    }
    #[getter]
    fn dp_rank(&self) -> u32 {
        self.row.key().dp_rank.0
    }
    #[getter]
    fn synchronized(&self) -> bool {
        self.hit.synchronized
    }
    #[getter]
    fn sequence(&self) -> Option<u64> {
        self.hit.sequence.map(|sequence| sequence.0)
    }
    #[getter]
    fn device_hit_tokens(&self) -> u64 {
        self.hit.device_hit_tokens
    }
    #[getter]
    fn host_only_hit_tokens(&self) -> u64 {
        self.hit.host_only_hit_tokens
    }
    #[getter]
    fn reusable_prefix_tokens(&self) -> u64 {
        self.hit.device_hit_tokens + self.hit.host_only_hit_tokens
    }
    #[getter]
    fn device_blocks(&self) -> u64 {
        self.hit.device_blocks
    }
    #[getter]
    fn host_blocks(&self) -> u64 {
        self.hit.host_blocks
    }
    #[getter]
    fn error(&self) -> &str {
        self.row.error()
    }

    fn __repr__(&self) -> String {
        let sequence = self
            .hit
            .sequence
            .map_or_else(|| "None".to_owned(), |sequence| sequence.to_string());
        format!(
            "Match(instance_name={:?}, dp_rank={}, synchronized={}, sequence={sequence}, device_hit_tokens={}, \
             host_only_hit_tokens={}, device_blocks={}, host_blocks={}, error={:?})",
            self.row.key().instance_name,
            self.row.key().dp_rank,
            if self.hit.synchronized {
                "True"
            } else {
                "False"
            },
            self.hit.device_hit_tokens,
            self.hit.host_only_hit_tokens,
            self.hit.device_blocks,
            self.hit.host_blocks,
            self.row.error(),
        )
    }
}

/// One `Match` a stream, by instance name, then rank; built when asked for.
#[pyclass(frozen, sequence, name = "Matches", module = "kvcache._core")]
pub(crate) struct PyMatches {
    matches: Matches,
}

impl From<Matches> for PyMatches {
    fn from(matches: Matches) -> Self {
        Self { matches }
    }
}

impl PyMatches {
    fn get(&self, index: usize) -> Option<PyMatch> {
        self.matches.get(index).map(|(row, hit)| PyMatch {
            row: row.clone(),
            hit,
        })
    }
}

#[pymethods]
impl PyMatches {
    fn __len__(&self) -> usize {
        self.matches.len()
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let length = isize::try_from(self.matches.len())?;
            let range = slice.indices(length)?;
            let count = range.slicelength;
            let mut at = range.start;
            let mut items = Vec::with_capacity(count);
            for _ in 0..count {
                items.extend(usize::try_from(at).ok().and_then(|at| self.get(at)));
                at += range.step;
            }
            return Ok(PyList::new(py, items)?.into_any());
        }
        let index: isize = index.extract()?;
        let length = self.matches.len();
        let at = if index < 0 {
            length.checked_add_signed(index)
        } else {
            usize::try_from(index).ok()
        };
        match at.and_then(|at| self.get(at)) {
            Some(found) => Ok(Bound::new(py, found)?.into_any()),
            None => Err(PyIndexError::new_err(format!("no match at index: {index}"))),
        }
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let items: Vec<PyMatch> = (0..self.matches.len())
            .filter_map(|index| self.get(index))
            .collect();
        Ok(PyList::new(py, items)?.try_iter()?.into_any().unbind())
    }

    fn __repr__(&self) -> String {
        format!("Matches({} streams)", self.matches.len())
    }
}

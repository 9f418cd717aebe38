//! `Matches`, and the `Match` that it builds when one is asked for.

use std::hash::{Hash, Hasher};

use bytemuck::NoUninit;
use kvcache_core::index::{Hit, Matches, Member, Row};
use kvcache_core::model::{Sequence, StreamKey};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PySlice, PyTuple};

use crate::reduce::{Reduced, reduced};
use crate::stream_names::StreamNames;

/// What one stream holds of a prompt (spec: query).
#[pyclass(frozen, eq, hash, name = "Match", module = "kvcache._core")]
pub(crate) struct PyMatch {
    row: Row,
    hit: Hit,
}

/// All that a match shows, in the order of its arguments in another process.
type Shown<'a> = (
    &'a str,
    u32,
    Option<&'a str>,
    &'a str,
    (bool, Option<u64>, u64, u64, u64, u64),
);

impl PyMatch {
    fn shown(&self) -> Shown<'_> {
        let hit = &self.hit;
        (
            self.instance_name(),
            self.dp_rank(),
            self.identity(),
            self.error(),
            (
                hit.synchronized,
                self.sequence(),
                hit.device_hit_tokens,
                hit.host_only_hit_tokens,
                hit.device_blocks,
                hit.host_blocks,
            ),
        )
    }
}

impl PartialEq for PyMatch {
    fn eq(&self, other: &Self) -> bool {
        self.shown() == other.shown()
    }
}

impl Eq for PyMatch {}

impl Hash for PyMatch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.shown().hash(state);
    }
}

/// A match in another process.
type Told = (
    String,
    u32,
    Option<String>,
    String,
    (bool, Option<u64>, u64, u64, u64, u64),
);

fn told(matches: Vec<Told>) -> PyResult<Matches> {
    let hits = matches
        .into_iter()
        .map(|(name, rank, identity, error, hit)| {
            let (synchronized, sequence, device_hit_tokens, host_only_hit_tokens, ..) = hit;
            let (.., device_blocks, host_blocks) = hit;
            let key = StreamKey::new(&name, rank);
            let hit = Hit {
                synchronized,
                sequence: sequence.map(Sequence),
                device_hit_tokens,
                host_only_hit_tokens,
                device_blocks,
                host_blocks,
            };
            (
                Member::new(key, identity.map(Into::into)),
                error.into(),
                hit,
            )
        });
    Matches::shown(hits).ok_or_else(|| PyValueError::new_err("more tokens than an answer can hold"))
}

/// Makes a `Match` in another process.
#[pyfunction]
pub(crate) fn _match(shown: Told) -> PyResult<PyMatch> {
    let matches = told(vec![shown])?;
    let (row, hit) = matches
        .get(0)
        .ok_or_else(|| PyValueError::new_err("a match is of a stream"))?;
    Ok(PyMatch {
        row: row.clone(),
        hit,
    })
}

/// Makes `Matches` in another process.
#[pyfunction]
pub(crate) fn _matches(token_count: usize, shown: Vec<Told>) -> PyResult<PyMatches> {
    Ok(PyMatches {
        matches: told(shown)?,
        token_count,
        names: StreamNames::default(),
    })
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
    fn identity(&self) -> Option<&str> {
        self.row.identity()
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

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduced(py, "_match", (self.shown(),))
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
    pub(crate) matches: Matches,
    pub(crate) token_count: usize,
    names: StreamNames,
}

impl PyMatches {
    pub(crate) fn new(matches: Matches, token_count: usize, names: &StreamNames) -> Self {
        Self {
            matches,
            token_count,
            names: names.clone(),
        }
    }

    fn get(&self, index: usize) -> Option<PyMatch> {
        self.matches.get(index).map(|(row, hit)| PyMatch {
            row: row.clone(),
            hit,
        })
    }
}

#[pymethods]
impl PyMatches {
    /// Tokens of the prompt.
    #[getter]
    fn token_count(&self) -> usize {
        self.token_count
    }

    /// `(instance_name, dp_rank)` a stream.
    #[getter]
    fn streams(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        Ok(self.names.of(py, &self.matches)?.names)
    }

    /// The identity of each stream, or `None`.
    #[getter]
    fn identities(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        Ok(self.names.of(py, &self.matches)?.identities)
    }

    /// int64, one a stream.
    #[getter]
    fn device_hit_tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let hits = self.matches.hit_tokens();
        array(py, "q", hits.map(|(device, _)| i64::from(device)))
    }

    /// int64, one a stream.
    #[getter]
    fn host_only_hit_tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let hits = self.matches.hit_tokens();
        array(py, "q", hits.map(|(_, host_only)| i64::from(host_only)))
    }

    /// int64, one a stream.
    #[getter]
    fn reusable_prefix_tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let hits = self.matches.hit_tokens();
        array(
            py,
            "q",
            hits.map(|(device, host_only)| i64::from(device) + i64::from(host_only)),
        )
    }

    /// bool, one a stream.
    #[getter]
    fn synchronized<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let views = self.matches.iter().map(|(_, hit)| hit.synchronized);
        array(py, "?", views.map(u8::from))
    }

    /// uint64, one a stream; 2^64-1 where there is none.
    #[getter]
    fn sequences<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let sequences = self.matches.iter().map(|(_, hit)| hit.sequence);
        array(
            py,
            "Q",
            sequences.map(|sequence| sequence.unwrap_or(Sequence::END).0),
        )
    }

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

    fn __eq__(&self, other: &Self) -> bool {
        self.token_count == other.token_count
            && self.matches.len() == other.matches.len()
            && (0..self.matches.len()).all(|index| self.get(index) == other.get(index))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let all: Vec<PyMatch> = (0..self.matches.len())
            .filter_map(|index| self.get(index))
            .collect();
        let shown: Vec<Shown<'_>> = all.iter().map(PyMatch::shown).collect();
        reduced(py, "_matches", (self.token_count, shown))
    }

    fn __repr__(&self) -> String {
        format!("Matches({} streams)", self.matches.len())
    }
}

/// A read-only memoryview of `format` (as in the module `struct`).
fn array<'py, T: NoUninit>(
    py: Python<'py>,
    format: &str,
    values: impl Iterator<Item = T>,
) -> PyResult<Bound<'py, PyAny>> {
    let values: Vec<T> = values.collect();
    let bytes = PyBytes::new(py, bytemuck::cast_slice(&values));
    PyMemoryView::from(&bytes)?.call_method1(intern!(py, "cast"), (format,))
}

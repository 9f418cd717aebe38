//! `Directory`.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvcache_core::directory::{
    Directory, DirectoryError, QueryRequest, StreamInfo, StreamSpec, matches_json,
};
use kvcache_core::model::Limits;
use kvcache_core::stream::DoubtKind;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::errors;
use crate::gil;
use crate::matches::PyMatches;
use crate::process::Process;
use crate::prompt::ask;
use crate::reduce::stays;
use crate::stream_journal::PyStreamJournal;
use crate::stream_names::StreamNames;
use crate::stream_spec::PyStreamSpec;

/// Signals are looked after this often while Python waits.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// Follows streams and answers queries.
#[pyclass(frozen, subclass, name = "Directory", module = "kvcache._core")]
pub(crate) struct PyDirectory {
    /// Shared with nobody, so that a child can keep it from being destroyed.
    directory: Arc<Directory>,
    names: StreamNames,
    process: Process,
}

impl PyDirectory {
    /// Raises `KvCacheError` in a child, where the views never move again and a lock may be held for ever.
    fn check_process(&self) -> PyResult<()> {
        self.process.check("Directory")
    }
}

impl Drop for PyDirectory {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // Its threads cannot be joined here, and its sockets are the parent's.
            mem::forget(self.directory.clone());
        }
    }
}

#[pymethods]
impl PyDirectory {
    #[new]
    #[pyo3(signature = (streams, *, max_streams=128, max_blocks_per_stream=262_144, max_message_bytes=8_388_608,
                        max_buffered_bytes=16_777_216, replay_timeout_ms=2000, resync_interval_ms=30_000))]
    #[expect(
        clippy::too_many_arguments,
        reason = "the limits of the configuration, by name"
    )]
    fn new(
        py: Python<'_>,
        streams: &Bound<'_, PyAny>,
        max_streams: usize,
        max_blocks_per_stream: usize,
        max_message_bytes: usize,
        max_buffered_bytes: usize,
        replay_timeout_ms: u64,
        resync_interval_ms: u64,
    ) -> PyResult<Self> {
        let limits = Limits {
            max_streams,
            max_blocks_per_stream,
            max_message_bytes,
            max_buffered_bytes,
            replay_timeout_ms,
            resync_interval_ms,
        };
        let specs = specs(streams)?;
        let directory = py
            .detach(|| Directory::start(specs, limits))
            .map_err(|error| errors::directory(&error))?;
        Ok(Self {
            directory: Arc::new(directory),
            names: StreamNames::default(),
            process: Process::current(),
        })
    }

    /// Who holds how much of a prompt. Raises `TokenIdsError`, `ClosedError`.
    fn query(&self, py: Python<'_>, token_ids: &Bound<'_, PyAny>) -> PyResult<PyMatches> {
        self.check_process()?;
        let (matches, token_count) = ask(
            py,
            token_ids,
            |tokens| self.directory.query(tokens),
            |keys| self.directory.query_keys(keys),
        )?;
        let matches = matches.map_err(|error| errors::directory(&error))?;
        Ok(PyMatches::new(matches, token_count, &self.names))
    }

    /// Answers a request body `{"token_ids":[…]}` with the response body. Raises `RequestError`.
    fn query_json<'py>(&self, py: Python<'py>, body: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        self.check_process()?;
        let answer = gil::free_while(py, body.len() >= gil::ENOUGH, || {
            let request = QueryRequest::parse(body).map_err(|error| errors::request(&error))?;
            let matches = self
                .directory
                .query(&request.token_ids)
                .map_err(|error| errors::directory(&error))?;
            Ok::<_, PyErr>(matches_json(&matches))
        })?;
        Ok(PyBytes::new(py, answer.as_bytes()))
    }

    /// Follows exactly `streams` from now on; returns how many were added, retired and kept.
    fn set_streams(
        &self,
        py: Python<'_>,
        streams: &Bound<'_, PyAny>,
    ) -> PyResult<(usize, usize, usize)> {
        self.check_process()?;
        let specs = specs(streams)?;
        let changes = py
            .detach(|| self.directory.set_streams(specs))
            .map_err(|error| errors::directory(&error))?;
        Ok((changes.added, changes.retired, changes.kept))
    }

    /// State of every stream (see `kvcache.types.StreamStatus`).
    fn streams<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.check_process()?;
        let infos = py
            .detach(|| self.directory.streams())
            .map_err(|error| errors::directory(&error))?;
        let dicts: PyResult<Vec<_>> = infos.iter().map(|info| stream_status(py, info)).collect();
        PyList::new(py, dicts?)
    }

    /// Blocks until every stream is synchronized. Raises `WaitTimeoutError` after `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn wait_synchronized(
        &self,
        py: Python<'_>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let timeout = crate::timeout::timeout(timeout)?;
        let start = Instant::now();
        loop {
            // Each time: a signal's handler may fork.
            self.check_process()?;
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            let slice = left.map_or(WAIT_SLICE, |left| left.min(WAIT_SLICE));
            let done = py.detach(|| self.directory.wait_synchronized_slice(slice));
            if done.map_err(|error| errors::directory(&error))? {
                return Ok(());
            }
            if let Some(timeout) = timeout.filter(|timeout| start.elapsed() >= *timeout) {
                let streams = self
                    .directory
                    .unsynchronized()
                    .map_err(|error| errors::directory(&error))?;
                let timeout_ms = timeout.as_millis();
                return Err(errors::directory(&DirectoryError::WaitTimeout {
                    timeout_ms,
                    streams,
                }));
            }
            py.check_signals()?;
        }
    }

    /// Gives the journal of lost and returned streams, which does not keep the directory alive.
    fn stream_journal(&self) -> PyStreamJournal {
        PyStreamJournal::new(self.directory.journal())
    }

    /// True in a child as well, where nothing of it runs.
    #[getter]
    fn closed(&self) -> bool {
        !self.process.is_current() || self.directory.is_closed()
    }

    /// Stops every task and thread; under a second. A second call does nothing, nor does one in a child.
    fn close(&self, py: Python<'_>) {
        if self.process.is_current() {
            py.detach(|| self.directory.close());
        }
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        let why = "it has threads and connections: start one from the same configuration";
        Err(stays(slf, why))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().check_process()?;
        Ok(slf)
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    #[expect(unused_variables, reason = "names of the protocol")]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc_value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) {
        self.close(py);
    }
}

fn specs(streams: &Bound<'_, PyAny>) -> PyResult<Vec<StreamSpec>> {
    let specs = streams
        .try_iter()?
        .map(|stream| Ok(stream?.cast::<PyStreamSpec>()?.get().spec.clone()));
    specs.collect()
}

fn stream_status<'py>(py: Python<'py>, info: &StreamInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let (spec, status) = (&info.spec, &info.status);
    let counters = &status.counters;
    dict.set_item("instance_name", &*spec.key.instance_name)?;
    dict.set_item("dp_rank", spec.key.dp_rank.0)?;
    dict.set_item("identity", spec.identity.as_deref())?;
    dict.set_item("state", status.state.as_str())?;
    dict.set_item("synchronized", status.error.is_empty())?;
    dict.set_item("error", &status.error)?;
    dict.set_item("last_error", &status.last_error)?;
    dict.set_item("sequence", info.sequence)?;
    dict.set_item("endpoint", spec.endpoint.to_string())?;
    dict.set_item("replay_endpoint", spec.replay_endpoint.to_string())?;
    dict.set_item("topic", &spec.topic)?;
    dict.set_item("block_size", spec.block_spec.block_size_tokens.get())?;
    dict.set_item("hash_seed", spec.block_spec.hash_seed)?;
    dict.set_item("device_blocks", info.device_blocks)?;
    dict.set_item("host_blocks", info.host_blocks)?;
    dict.set_item("known_blocks", status.sizes.known_blocks)?;
    dict.set_item("orphan_blocks", status.sizes.orphan_blocks)?;
    dict.set_item(
        "memory_bytes",
        status.sizes.memory_bytes + status.buffered_bytes,
    )?;
    dict.set_item("buffered_bytes", status.buffered_bytes)?;
    dict.set_item("messages_per_second", status.messages_per_second)?;
    dict.set_item("bytes_per_second", status.bytes_per_second)?;
    for (name, total) in [
        ("messages_total", counters.messages),
        ("bytes_total", counters.bytes),
        ("blocks_stored_total", counters.applied.stored),
        ("blocks_removed_total", counters.applied.removed),
        ("already_stored_total", counters.applied.already_stored),
        ("already_removed_total", counters.applied.already_removed),
        ("other_tier_total", counters.applied.other_tier),
        ("orphaned_total", counters.applied.orphaned),
        ("foreign_topic_total", counters.foreign_topic),
        ("connects_total", counters.connects),
        ("snapshots_total", counters.snapshots),
        ("snapshot_failures_total", counters.snapshot_failures),
        ("calibrations_total", counters.calibrations),
        ("calibration_failures_total", counters.calibration_failures),
        (
            "sequences_lost_found_by_calibration_total",
            counters.sequences_lost,
        ),
        (
            "blocks_lost_found_by_calibration_total",
            counters.blocks_lost,
        ),
    ] {
        dict.set_item(name, total)?;
    }
    let doubts = PyDict::new(py);
    for kind in DoubtKind::ALL {
        doubts.set_item(kind.as_str(), counters.doubts(kind))?;
    }
    dict.set_item("doubts", doubts)?;
    Ok(dict)
}

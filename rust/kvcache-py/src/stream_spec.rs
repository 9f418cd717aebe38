//! `StreamSpec`.

use kvcache_core::directory::StreamSpec;
use kvcache_core::model::StreamKey;
use kvcache_core::zmtp::Endpoint;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::block_keys::block_spec;

/// One rank of one instance, to be followed. Endpoints are `tcp://host:port`.
#[derive(PartialEq, Eq, Hash)]
#[pyclass(frozen, eq, hash, name = "StreamSpec", module = "kvcache._core")]
pub(crate) struct PyStreamSpec {
    pub(crate) spec: StreamSpec,
}

#[pymethods]
impl PyStreamSpec {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "what names a stream, by name")]
    #[pyo3(signature = (*, instance_name, endpoint, replay_endpoint, dp_rank=0, block_size=128, topic="", hash_seed=1024, identity=None))]
    fn new(
        instance_name: &str,
        endpoint: &str,
        replay_endpoint: &str,
        dp_rank: u32,
        block_size: u32,
        topic: &str,
        hash_seed: u64,
        identity: Option<&str>,
    ) -> PyResult<Self> {
        Ok(Self {
            spec: StreamSpec {
                key: StreamKey::new(instance_name, dp_rank),
                block_spec: block_spec(block_size, hash_seed)?,
                endpoint: parse(endpoint)?,
                replay_endpoint: parse(replay_endpoint)?,
                topic: topic.to_owned(),
                identity: identity.map(Into::into),
            },
        })
    }

    #[getter]
    fn instance_name(&self) -> &str {
        &self.spec.key.instance_name
    }
    #[getter]
    fn dp_rank(&self) -> u32 {
        self.spec.key.dp_rank.0
    }
    #[getter]
    fn block_size(&self) -> u32 {
        self.spec.block_spec.block_size_tokens.get()
    }
    #[getter]
    fn endpoint(&self) -> String {
        self.spec.endpoint.to_string()
    }
    #[getter]
    fn replay_endpoint(&self) -> String {
        self.spec.replay_endpoint.to_string()
    }
    #[getter]
    fn topic(&self) -> &str {
        &self.spec.topic
    }
    #[getter]
    fn hash_seed(&self) -> u64 {
        self.spec.block_spec.hash_seed
    }
    #[getter]
    fn identity(&self) -> Option<&str> {
        self.spec.identity.as_deref()
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let named = PyDict::new(py);
        named.set_item("instance_name", self.instance_name())?;
        named.set_item("endpoint", self.endpoint())?;
        named.set_item("replay_endpoint", self.replay_endpoint())?;
        named.set_item("dp_rank", self.dp_rank())?;
        named.set_item("block_size", self.block_size())?;
        named.set_item("topic", self.topic())?;
        named.set_item("hash_seed", self.hash_seed())?;
        named.set_item("identity", self.identity())?;
        Ok((PyTuple::empty(py), named))
    }

    fn __repr__(&self) -> String {
        format!(
            "StreamSpec({:?}, rank {}, {} and {})",
            self.spec.key.instance_name,
            self.spec.key.dp_rank,
            self.spec.endpoint,
            self.spec.replay_endpoint
        )
    }
}

fn parse(endpoint: &str) -> PyResult<Endpoint> {
    Endpoint::parse(endpoint).map_err(|error| PyValueError::new_err(error.to_string()))
}

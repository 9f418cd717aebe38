//! How values are pickled and copied, and what says that it is not.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A function, and what it is called with elsewhere (`object.__reduce__`).
pub(crate) type Reduced<'py> = (Bound<'py, PyAny>, Bound<'py, PyTuple>);

/// Names the function of this module that makes the value anew from `args`.
pub(crate) fn reduced<'py>(
    py: Python<'py>,
    maker: &str,
    args: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
) -> PyResult<Reduced<'py>> {
    let module = py.import("kvcache._core")?;
    Ok((module.getattr(maker)?, args.into_pyobject(py)?))
}

/// A `TypeError` that says why, and what to do instead. The words are those of `kvcache._stays.Stays`.
pub(crate) fn stays(what: &Bound<'_, PyAny>, why: &str) -> PyErr {
    match what.get_type().name() {
        Ok(name) => PyTypeError::new_err(format!("a {name} cannot be pickled or copied, as {why}")),
        Err(error) => error,
    }
}

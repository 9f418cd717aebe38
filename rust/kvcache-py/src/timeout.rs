//! Timeouts as Python gives them.

use std::time::Duration;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

const RIGHT: &str = "timeout must be a number of seconds from 0, or None or inf to wait for ever";

/// A number of seconds; `None` waits for ever, as does any number that is too large for a clock.
pub(crate) fn timeout(seconds: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(given) = seconds else {
        return Ok(None);
    };
    let wrong_type = || Err(PyTypeError::new_err(format!("{RIGHT}: {given:?}")));
    if given.is_instance_of::<PyBool>() {
        return wrong_type();
    }
    let seconds = match given.extract::<f64>() {
        Ok(seconds) => seconds,
        // An integer with more digits than a float has room for.
        Err(error) if error.is_instance_of::<PyOverflowError>(given.py()) => {
            if given.gt(0)? {
                f64::INFINITY
            } else {
                -1.0
            }
        }
        Err(_) => return wrong_type(),
    };
    // Neither does a NaN compare.
    if seconds >= 0.0 {
        Ok(Duration::try_from_secs_f64(seconds).ok())
    } else {
        Err(PyValueError::new_err(format!("{RIGHT}: {given:?}")))
    }
}

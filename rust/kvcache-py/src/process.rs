//! `Process`: which process an object's threads run in.
//!
//! A forked child has a copy of every object and none of their threads: what they kept up to date stands still there.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use crate::errors;

/// Forks between the process that imported the module and this one: one load tells a child from its parent, where a process
/// id would take a system call a query.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// A process among its ancestors and descendants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u64);

impl Process {
    /// This one.
    pub(crate) fn current() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether it is this one.
    pub(crate) fn is_current(self) -> bool {
        self == Self::current()
    }

    /// Raises `KvCacheError` in a child of the process that `what` was started in.
    pub(crate) fn check(self, what: &str) -> PyResult<()> {
        if self.is_current() {
            Ok(())
        } else {
            Err(errors::forked(what))
        }
    }
}

/// Has Python count forks in each child, before anything else runs there.
pub(crate) fn count_forks(py: Python<'_>) -> PyResult<()> {
    let os = py.import("os")?;
    let Some(register) = os.getattr_opt("register_at_fork")? else {
        // A system without forks.
        return Ok(());
    };
    let count = |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        FORKS.fetch_add(1, Ordering::Relaxed);
    };
    let hooks = PyDict::new(py);
    let hook = PyCFunction::new_closure(py, None, None, count)?;
    hooks.set_item("after_in_child", hook)?;
    register.call((), Some(&hooks))?;
    Ok(())
}

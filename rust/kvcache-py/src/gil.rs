//! When the GIL is given up, and how it is taken back.
//!
//! To give the GIL up and take it back costs a thread 0.1 µs, and others far more. Who waits for it asks the holder for it
//! after a switch interval (5 ms) in which it was never given up; each time it is, the waiter is woken, 50 µs later on a
//! machine with little to do, and when the GIL is taken again by then the interval begins anew. A thread that converts a
//! list for 130 µs and then gives the GIL up for 5 µs keeps others waiting for hundreds of milliseconds (`bench/sleeper.py`).
//!
//! So a call gives it up once, and only for enough work: [`ENOUGH`] where the GIL is hardly held besides, so that whoever
//! waits gets it soon; [`ENOUGH_AFTER_OBJECTS`] where a list was converted before, which holds it for ten times as long as
//! the query then takes: not before a waiter has time to wake.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

/// Token ids in a buffer, blocks hashed before, or bytes of a body: 1 to 5 µs of work. Two threads with prompts of 8,192
/// tokens ask 1.5 times as much as one, and 0.95 times as much when neither gives the GIL up (`bench/threads.py`).
pub(crate) const ENOUGH: usize = 4096;

/// Token ids that were an object each: 50 µs of work and more.
pub(crate) const ENOUGH_AFTER_OBJECTS: usize = 131_072;

/// Whether some thread took the GIL back from here and did not give it up here since.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Looks at [`TAKEN`] before the GIL is waited for after all: 20 µs at most.
const LOOKS: u32 = 1000;

/// A free-threaded interpreter has nothing to wait for.
static HAS_GIL: AtomicBool = AtomicBool::new(true);

/// Finds out which interpreter this is.
pub(crate) fn find_out(py: Python<'_>) -> PyResult<()> {
    if let Some(is_enabled) = py.import("sys")?.getattr_opt("_is_gil_enabled")? {
        HAS_GIL.store(is_enabled.call0()?.extract()?, Ordering::Relaxed);
    }
    Ok(())
}

/// Does `work`, without the GIL where it is `enough`.
pub(crate) fn free_while<T: Send>(
    py: Python<'_>,
    enough: bool,
    work: impl FnOnce() -> T + Send,
) -> T {
    if !enough {
        return work();
    }
    py.detach(|| {
        TAKEN.store(false, Ordering::Release);
        let done = work();
        if HAS_GIL.load(Ordering::Relaxed) {
            look_before_taking();
        }
        done
    })
}

/// Waits for another thread's next query rather than for the GIL, which it gives up then: to be put to sleep and woken costs
/// both threads more than a query, and two threads would ask less than one.
fn look_before_taking() {
    for _ in 0..LOOKS {
        if !TAKEN.load(Ordering::Relaxed) && !TAKEN.swap(true, Ordering::Acquire) {
            return;
        }
        hint::spin_loop();
    }
}

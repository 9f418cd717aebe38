//! `CandidateCosts`.

use kvcache_core::index::CandidateCosts;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::matches::PyMatches;
use crate::reduce::{Reduced, reduced};

/// Candidates, and what each costs: `miss_weight * (1 - ratio) + base`.
#[pyclass(frozen, name = "CandidateCosts", module = "kvcache._core")]
pub(crate) struct PyCandidateCosts {
    costs: CandidateCosts,
}

#[pymethods]
impl PyCandidateCosts {
    #[new]
    #[pyo3(signature = (places, base_costs, *, miss_weight, host_hit_weight))]
    fn new(
        places: Vec<Vec<usize>>,
        base_costs: Vec<f64>,
        miss_weight: f64,
        host_hit_weight: f64,
    ) -> PyResult<Self> {
        if places.len() != base_costs.len() {
            return Err(unequal(places.len(), base_costs.len()));
        }
        let candidates = places.into_iter().zip(base_costs);
        Ok(Self {
            costs: CandidateCosts::new(candidates, miss_weight, host_hit_weight),
        })
    }

    /// The same candidates with other base costs. Raises `ValueError` unless there is one for each.
    fn with_base_costs(&self, base_costs: Vec<f64>) -> PyResult<Self> {
        let given = base_costs.len();
        match self.costs.with_base_costs(base_costs) {
            Some(costs) => Ok(Self { costs }),
            None => Err(unequal(self.costs.len(), given)),
        }
    }

    /// Which cost the least, what each of those reuses, and the most that any candidate does.
    fn cheapest(&self, matches: &PyMatches) -> (Vec<usize>, Vec<u64>, u64) {
        let found = self.costs.cheapest(&matches.matches, matches.token_count);
        (found.candidates, found.hit_tokens, found.best_hit_tokens)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let candidates = self.costs.candidates();
        let (places, base_costs): (Vec<Vec<usize>>, Vec<f64>) = candidates
            .map(|(places, base)| (places.to_vec(), base))
            .unzip();
        let weights = (self.costs.miss_weight(), self.costs.host_hit_weight());
        reduced(
            py,
            "_candidate_costs",
            (places, base_costs, weights.0, weights.1),
        )
    }

    fn __len__(&self) -> usize {
        self.costs.len()
    }
}

/// Makes `CandidateCosts` in another process.
#[pyfunction]
pub(crate) fn _candidate_costs(
    places: Vec<Vec<usize>>,
    base_costs: Vec<f64>,
    miss_weight: f64,
    host_hit_weight: f64,
) -> PyResult<PyCandidateCosts> {
    PyCandidateCosts::new(places, base_costs, miss_weight, host_hit_weight)
}

fn unequal(candidates: usize, base_costs: usize) -> PyErr {
    PyValueError::new_err(format!(
        "{candidates} candidates need as many base costs, not: {base_costs}"
    ))
}

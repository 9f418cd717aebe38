//! Which candidates cost the least, where reuse of a prompt makes a candidate cheaper.
//!
//! A candidate is a group of streams that serve as one: it reuses what the worst of them does, as nobody can choose
//! among them. Floats are computed in f64, in exactly the order in which they are written here, so that another
//! implementation of the same formula gives the same bits.

use std::cmp::Ordering;
use std::sync::Arc;

use super::query::Matches;

/// Groups of places in [`Matches`].
#[derive(Debug)]
struct Groups {
    places: Vec<usize>,
    /// Where each group's places end.
    ends: Vec<usize>,
}

/// Candidates, and what each costs: `miss_weight * (1 - ratio) + base`.
///
/// `ratio` is the lowest of its streams' `(device + host_hit_weight * host_only) / prompt tokens`, within 0 to 1; 0 for a
/// candidate without streams. What the places mean is up to who made them: they are those of one answer's streams.
#[derive(Clone, Debug)]
pub struct CandidateCosts {
    groups: Arc<Groups>,
    base_costs: Vec<f64>,
    miss_weight: f64,
    host_hit_weight: f64,
}

/// The cheapest of some candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cheapest {
    /// Which candidates cost the least; several when they cost exactly the same.
    pub candidates: Vec<usize>,
    /// Tokens that each of them reuses at the least, of either tier.
    pub hit_tokens: Vec<u64>,
    /// The most that any candidate reuses.
    pub best_hit_tokens: u64,
}

impl CandidateCosts {
    /// `candidates` are the places of each one's streams, and its base cost.
    pub fn new(
        candidates: impl IntoIterator<Item = (Vec<usize>, f64)>,
        miss_weight: f64,
        host_hit_weight: f64,
    ) -> Self {
        let mut groups = Groups {
            places: Vec::new(),
            ends: Vec::new(),
        };
        let mut base_costs = Vec::new();
        for (places, base_cost) in candidates {
            groups.places.extend(places);
            groups.ends.push(groups.places.len());
            base_costs.push(base_cost);
        }
        Self {
            groups: Arc::new(groups),
            base_costs,
            miss_weight,
            host_hit_weight,
        }
    }

    /// The same candidates with other base costs; `None` unless there is one for each.
    #[must_use]
    pub fn with_base_costs(&self, base_costs: Vec<f64>) -> Option<Self> {
        let fits = base_costs.len() == self.base_costs.len();
        fits.then(|| Self {
            base_costs,
            ..self.clone()
        })
    }

    /// Each candidate's places, and its base cost.
    pub fn candidates(&self) -> impl Iterator<Item = (&[usize], f64)> {
        let mut start = 0;
        let ends = self.groups.ends.iter().zip(&self.base_costs);
        ends.map(move |(end, base)| {
            let places = self.groups.places.get(start..*end).unwrap_or_default();
            start = *end;
            (places, *base)
        })
    }

    /// What it costs to reuse nothing.
    #[must_use]
    pub fn miss_weight(&self) -> f64 {
        self.miss_weight
    }

    /// What a token in Host memory alone is worth beside one on Device.
    #[must_use]
    pub fn host_hit_weight(&self) -> f64 {
        self.host_hit_weight
    }

    /// Candidates.
    #[must_use]
    pub fn len(&self) -> usize {
        self.base_costs.len()
    }

    /// Whether there is no candidate.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.base_costs.is_empty()
    }

    /// The cheapest for a prompt of `prompt_tokens`, by what `matches` says of it. A place beyond the answer holds nothing.
    #[must_use]
    pub fn cheapest(&self, matches: &Matches, prompt_tokens: usize) -> Cheapest {
        let mut found = Cheapest::default();
        let mut lowest = f64::INFINITY;
        for (candidate, (places, base)) in self.candidates().enumerate() {
            let (ratio, hit_tokens) = self.reuse(matches, places, prompt_tokens);
            found.best_hit_tokens = found.best_hit_tokens.max(hit_tokens);
            let cost = self.miss_weight * (1.0 - ratio) + base;
            match cost.partial_cmp(&lowest) {
                Some(Ordering::Equal) => {}
                Some(Ordering::Less) => {
                    lowest = cost;
                    found.candidates.clear();
                    found.hit_tokens.clear();
                }
                // What cannot be compared is never the cheapest.
                Some(Ordering::Greater) | None => continue,
            }
            found.candidates.push(candidate);
            found.hit_tokens.push(hit_tokens);
        }
        found
    }

    /// The lowest ratio of some streams, and the lowest number of tokens.
    fn reuse(&self, matches: &Matches, places: &[usize], prompt_tokens: usize) -> (f64, u64) {
        let reuses = places.iter().map(|place| {
            let (device, host_only) = matches.hit_tokens_at(*place);
            let ratio = self.ratio(device, host_only, prompt_tokens);
            (ratio, u64::from(device) + u64::from(host_only))
        });
        reuses
            .reduce(|worst, other| (worst.0.min(other.0), worst.1.min(other.1)))
            .unwrap_or_default()
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "no prompt has 2^53 tokens, and a ratio is a float"
    )]
    fn ratio(&self, device: u32, host_only: u32, prompt_tokens: usize) -> f64 {
        if prompt_tokens == 0 {
            return 0.0;
        }
        let weighed = f64::from(device) + self.host_hit_weight * f64::from(host_only);
        (weighed / prompt_tokens as f64).clamp(0.0, 1.0)
    }
}

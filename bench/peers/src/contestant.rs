//! What is asked of an index that takes part.
//!
//! Whatever an index wants its input to look like is prepared before the clock starts; what it returns is read
//! after the clock has stopped.

use std::time::Duration;

use anyhow::Result;

use crate::workload::{Scores, Span, Workload};

/// An index with its writing side.
pub trait Contestant: Send + Sized {
    const NAME: &'static str;
    /// Whether [`apply`](Self::apply) hashes tokens; the others are given hashes.
    const APPLY_HASHES: bool = false;
    /// What an engine says about one span.
    type Event: Send;
    /// Its reading side.
    type Reader: Reader;

    /// An empty index that knows the workload's workers.
    ///
    /// # Errors
    /// What the index refuses.
    fn new(workload: &Workload) -> Result<Self>;

    /// A worker says that it has these blocks.
    fn store(workload: &Workload, span: &Span) -> Self::Event;

    /// A worker says that it has lost these blocks, last one first.
    fn remove(workload: &Workload, span: &Span) -> Self::Event;

    /// Applies events in order; how long that took, on one thread.
    ///
    /// # Errors
    /// What the index refuses.
    fn apply(&mut self, events: Vec<Self::Event>) -> Result<Duration>;

    /// A handle for queries, here or in another thread.
    fn reader(&self) -> Self::Reader;
}

/// The side of an index that queries use.
pub trait Reader: Send {
    /// A prompt as the index likes it best.
    type Keys;
    /// Who holds how much, as the index says it.
    type Answer;

    fn hash(&self, tokens: &[u32]) -> Self::Keys;

    fn query_tokens(&self, tokens: &[u32]) -> Self::Answer;

    fn query_keys(&self, keys: &Self::Keys) -> Self::Answer;

    /// Scores by worker without an answer of their own, in the indexes that offer that; false in the others.
    fn score_into(&self, _keys: &Self::Keys, _scores: &mut [u32]) -> bool {
        false
    }

    fn scores(&self, answer: &Self::Answer) -> Scores;
}

/// All stores.
#[must_use]
pub fn stores<C: Contestant>(workload: &Workload) -> Vec<C::Event> {
    workload
        .stores
        .iter()
        .map(|span| C::store(workload, span))
        .collect()
}

/// All removes.
#[must_use]
pub fn removes<C: Contestant>(workload: &Workload) -> Vec<C::Event> {
    let spans = workload.removes.iter().rev();
    spans.map(|span| C::remove(workload, span)).collect()
}

/// What the removes removed, stored again.
#[must_use]
pub fn restores<C: Contestant>(workload: &Workload) -> Vec<C::Event> {
    workload
        .removes
        .iter()
        .map(|span| C::store(workload, span))
        .collect()
}

/// A full index.
///
/// # Errors
/// What the index refuses.
pub fn filled<C: Contestant>(workload: &Workload) -> Result<C> {
    let mut index = C::new(workload)?;
    for few in workload.stores.chunks(16) {
        let events = few.iter().map(|span| C::store(workload, span)).collect();
        index.apply(events)?;
    }
    Ok(index)
}

/// Queries whose answer is not the workload's.
pub fn wrong_answers<R: Reader>(reader: &R, workload: &Workload) -> usize {
    let wrong = workload.queries.iter().filter(|query| {
        let tokens = reader.scores(&reader.query_tokens(&query.prompt.tokens));
        let keys = reader.scores(&reader.query_keys(&reader.hash(&query.prompt.tokens)));
        tokens != query.answer || keys != query.answer
    });
    wrong.count()
}
